"""An LlmRequest as the body of a request to Anthropic's messages API."""

from __future__ import annotations

import json

import pytest

from stepgraph.v1 import conversation_pb2 as pb
from stepgraph.v1.llm_pb2 import LlmRequest, ToolChoice, ToolDefinition
from stepgraph_client.providers.anthropic_blocks import Names
from stepgraph_client.providers.anthropic_call_ids import CallIds
from stepgraph_client.providers.anthropic_request import Terms, body_of
from stepgraph_client.providers.tool_names import ToolNames
from stepgraph_client.task_errors import Failed
from tests.support.provider_context import Attempt

OLDER = Terms(api_version="2023-06-01")


async def body(request=None, *, model="claude-sonnet-4-5", terms=None, **fields):
    request = request or LlmRequest(**fields)
    names = Names(tools=ToolNames.of(request), calls=CallIds(request.messages))
    return await body_of(model, request, names, Attempt().ctx, terms or Terms())


def message(role, *blocks):
    content = [
        pb.ContentBlock(text=pb.TextBlock(text=block)) if isinstance(block, str) else block
        for block in blocks
    ]
    return pb.Message(role=role, content=content)


def user(*blocks):
    return message(pb.ROLE_USER, *blocks)


def assistant(*blocks):
    return message(pb.ROLE_ASSISTANT, *blocks)


def call(number, name="stock"):
    block = pb.ToolCallBlock(id=f"1/t/{number}", name=name, provider_id=f"toolu_{number}")
    return pb.ContentBlock(tool_call=block)


def result(number, text):
    content = [pb.ContentBlock(text=pb.TextBlock(text=text))]
    return message(
        pb.ROLE_TOOL,
        pb.ContentBlock(tool_result=pb.ToolResultBlock(call_id=f"1/t/{number}", content=content)),
    )


def kinds(turn):
    return [block["type"] for block in turn["content"]]


async def test_a_plain_question():
    """A question without anything else is the model, the question, and the limit that the API demands."""
    assert await body(messages=[user("hello")]) == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 8192,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
        "stream": True,
    }


async def test_instructions_stand_apart_from_the_conversation():
    """The system prompt and messages of the system become one text, in order; they are no turns."""
    messages = [
        message(pb.ROLE_SYSTEM, "Be brief."),
        user("a"),
        message(pb.ROLE_SYSTEM, "", "Now."),
    ]
    made = await body(system_prompt="You are a clerk.", messages=messages)
    assert made["system"] == "You are a clerk.\n\nBe brief.\n\nNow."
    assert [turn["role"] for turn in made["messages"]] == ["user"]


async def test_instructions_are_text():
    """A picture among instructions is refused with its path."""
    picture = pb.ContentBlock(image=pb.ImageBlock(uri="https://example.com/a.png"))
    with pytest.raises(Failed, match=r"messages\[1\]\.content\[1\]: .* only text") as caught:
        await body(messages=[user("a"), message(pb.ROLE_SYSTEM, "b", picture)])
    assert caught.value.code == "CONTENT_UNSUPPORTED"


async def test_neighbours_of_one_role_become_one_turn():
    """Results of several calls, and what a person says after them, are one turn of the user, results first."""
    messages = [
        user("a"),
        user("b"),
        assistant("look", call(0), call(1)),
        result(0, "3"),
        user("meanwhile"),
        result(1, "4"),
        assistant(""),
        user("go on"),
    ]
    turns = (await body(messages=messages))["messages"]
    assert [(turn["role"], kinds(turn)) for turn in turns] == [
        ("user", ["text", "text"]),
        ("assistant", ["text", "tool_use", "tool_use"]),
        ("user", ["tool_result", "tool_result", "text", "text"]),
    ]
    assert [block["tool_use_id"] for block in turns[2]["content"][:2]] == ["toolu_0", "toolu_1"]


async def test_tools_in_the_form_of_the_api():
    """A tool has a name that the API takes, its description and its schema; without one any object will do."""
    tools = [
        ToolDefinition(name="shop.stock", description="Look.", input_schema='{"type": "object"}'),
        ToolDefinition(name="order"),
    ]
    made = await body(tools=tools, messages=[user("a")])
    assert made["tools"] == [
        {"name": "shop_stock", "description": "Look.", "input_schema": {"type": "object"}},
        {"name": "order", "input_schema": {"type": "object"}},
    ]
    assert made["tool_choice"] == {"type": "auto"}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ToolChoice(auto=ToolChoice.Auto()), {"type": "auto"}),
        (ToolChoice(forbidden=ToolChoice.Forbidden()), {"type": "none"}),
        (ToolChoice(required=ToolChoice.Required()), {"type": "any"}),
        (
            ToolChoice(named=ToolChoice.Named(name="shop.stock")),
            {"type": "tool", "name": "shop_stock"},
        ),
    ],
    ids=["auto", "forbidden", "required", "named"],
)
async def test_which_tool_must_be_called(choice, expected):
    """Each choice has its form; a tool is named as the API was told it."""
    made = await body(tools=[ToolDefinition(name="shop.stock")], tool_choice=choice)
    assert made["tool_choice"] == expected


async def test_a_history_with_calls_has_definitions_even_without_tools():
    """Where the history has calls but no tools are offered, they are defined and forbidden."""
    made = await body(messages=[user("a"), assistant(call(0, "b.c"), call(1, "a")), result(0, "x")])
    assert made["tools"] == [
        {"name": "a", "input_schema": {"type": "object"}},
        {"name": "b_c", "input_schema": {"type": "object"}},
    ]
    assert made["tool_choice"] == {"type": "none"}


async def test_a_schema_of_a_tool_that_is_no_json_is_refused():
    """A tool whose schema is no JSON is refused by its place."""
    tools = [ToolDefinition(name="a"), ToolDefinition(name="b", input_schema="{")]
    with pytest.raises(Failed, match=r"tools\[1\]\.input_schema: it is not JSON"):
        await body(tools=tools)


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("claude-3-7-sonnet-20250219", {"type": "enabled", "budget_tokens": 2000}),
        ("claude-haiku-4-5-20251001", {"type": "enabled", "budget_tokens": 2000}),
        ("claude-opus-4-20250514", {"type": "enabled", "budget_tokens": 2000}),
        ("claude-sonnet-4-6", {"type": "adaptive", "display": "summarized"}),
        ("anthropic/claude-opus-4.7", {"type": "adaptive", "display": "summarized"}),
        ("claude-sonnet-5", {"type": "adaptive", "display": "summarized"}),
        ("claude-opus-5-5", {"type": "adaptive", "display": "summarized"}),
        ("qwen3-32b", {"type": "enabled", "budget_tokens": 2000}),
        ("my-proxy", {"type": "enabled", "budget_tokens": 2000}),
    ],
)
async def test_thinking_in_the_form_that_the_model_takes(model, thinking):
    """Models up to 4.5, and those of unknown generation, take the budget; later ones measure it themselves."""
    made = await body(model=model, thinking_budget=2000)
    assert made["thinking"] == thinking
    assert made["max_tokens"] == 8192 + 2000, "thoughts come on top of the default"


async def test_limits_are_sent_as_they_are():
    """A limit that was given is what is sent, also where a budget is above it: the API says so."""
    made = await body(max_tokens=100, thinking_budget=2000)
    assert made["max_tokens"] == 100
    assert (await body(terms=Terms(max_tokens=4096)))["max_tokens"] == 4096


async def test_a_temperature_is_refused_where_the_api_takes_none():
    """With the current version of the API a temperature is refused, with what to do; with the older one it is sent."""
    with pytest.raises(Failed, match=r"temperature: .* none since .*2026-10-21.* 2023-06-01") as e:
        await body(temperature=0.0)
    assert (e.value.code, e.value.retryable) == ("REQUEST_REJECTED", False)
    assert (await body(temperature=0.25, terms=OLDER))["temperature"] == 0.25


async def test_an_answer_with_a_schema():
    """A schema is sent as far as the API compiles it; what it does not becomes words for the model."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
    made = await body(output_schema=json.dumps(schema))
    assert made["output_config"] == {
        "format": {
            "type": "json_schema",
            "schema": {
                "type": "object",
                "properties": {"n": {"type": "integer", "description": "{minimum: 1}"}},
                "additionalProperties": False,
            },
        }
    }


@pytest.mark.parametrize("schema", ["{", "[]", "{}", '{"type": "objekt"}', '{"type": ["string"]}'])
async def test_a_schema_that_the_api_can_not_use_is_refused(schema):
    """A schema that can't be put into the API's form is refused by its field."""
    with pytest.raises(Failed, match="output_schema: Anthropic's API can't use it") as caught:
        await body(output_schema=schema)
    assert caught.value.details == {"field": "output_schema"}


async def test_options_win_over_what_is_made():
    """Options of the provider are merged; an effort stands beside the schema, and thinking may be said otherwise."""
    options = {
        "thinking": {"type": "between_tools"},
        "output_config": {"effort": "low"},
        "cache_control": {"type": "ephemeral"},
    }
    made = await body(
        thinking_budget=2000,
        output_schema='{"type": "object"}',
        provider_options=json.dumps(options),
    )
    assert made["thinking"] == {"type": "between_tools"}
    assert made["cache_control"] == {"type": "ephemeral"}
    assert set(made["output_config"]) == {"effort", "format"}
    alone = await body(provider_options=json.dumps(options))
    assert alone["output_config"] == {"effort": "low"}


@pytest.mark.parametrize(
    "name",
    ["model", "messages", "system", "tools", "tool_choice", "max_tokens", "temperature", "stream"],
)
async def test_options_leave_alone_what_has_a_field(name):
    """What a field of the request says can't be said by an option, and the error names the field."""
    with pytest.raises(Failed, match=rf"can't set '{name}'; use ") as caught:
        await body(provider_options=json.dumps({name: 1}))
    assert caught.value.code == "OPTIONS_INVALID"
