"""An LlmRequest as the body of a chat completion."""

from __future__ import annotations

import json

import pytest

from stepgraph.v1.llm_pb2 import LlmRequest, ToolChoice
from stepgraph_client.providers.openai_dialect import Dialect
from stepgraph_client.providers.openai_requests import body_of, effort_of, is_strict
from stepgraph_client.providers.tool_names import ToolNames
from stepgraph_client.task_errors import Failed
from tests.support.provider_context import Attempt

TOOL = {"name": "files.read", "description": "Read.", "input_schema": '{"type": "object"}'}


async def body(dialect=None, **fields):
    request = LlmRequest(**fields)
    names = ToolNames.of(request)
    return await body_of(request, Attempt().ctx, names, dialect or Dialect())


async def test_what_is_absent_is_not_sent():
    """A field that nobody set is left to the model's default."""
    assert await body() == {"messages": []}


async def test_zero_is_sent():
    """A temperature of 0 is not the absence of one."""
    assert await body(temperature=0.0, max_tokens=5) == {
        "messages": [],
        "temperature": 0.0,
        "max_tokens": 5,
    }


async def test_the_limit_has_the_name_of_the_dialect():
    """OpenAI's own models are told the limit under another name."""
    dialect = Dialect(max_tokens_field="max_completion_tokens")
    assert await body(dialect, max_tokens=5) == {"messages": [], "max_completion_tokens": 5}


async def test_usage_is_asked_of_a_stream():
    """A stream is asked to end with its usage, unless the server does not know that."""
    assert (await body(streaming=True))["stream_options"] == {"include_usage": True}
    assert "stream_options" not in await body(Dialect(asks_for_usage=False), streaming=True)


@pytest.mark.parametrize(
    ("budget", "effort"),
    [(0, "none"), (1, "low"), (2048, "low"), (2049, "medium"), (8192, "medium"), (8193, "high")],
)
def test_a_budget_is_an_effort(budget, effort):
    """A budget of thought becomes one of the efforts."""
    assert effort_of(budget) == effort


async def test_a_budget_is_sent_as_an_effort():
    """The effort is sent, also for a budget of none."""
    assert (await body(thinking_budget=0))["reasoning_effort"] == "none"


async def test_tools_are_functions():
    """A tool is a function with a name that the API takes; one without a schema takes any object."""
    sent = await body(tools=[TOOL, {"name": "now"}])
    assert sent["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "files_read",
                "description": "Read.",
                "parameters": {"type": "object"},
            },
        },
        {
            "type": "function",
            "function": {"name": "now", "parameters": {"type": "object", "properties": {}}},
        },
    ]
    assert "tool_choice" not in sent


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (ToolChoice(auto={}), None),
        (ToolChoice(forbidden={}), "none"),
        (ToolChoice(required={}), "required"),
        (
            ToolChoice(named={"name": "files.read"}),
            {"type": "function", "function": {"name": "files_read"}},
        ),
    ],
    ids=["auto", "forbidden", "required", "named"],
)
async def test_a_choice_is_in_the_words_of_the_api(choice, sent):
    """Each choice has its word; that the model decides is the default."""
    assert (await body(tools=[TOOL], tool_choice=choice)).get("tool_choice") == sent


async def test_a_choice_without_tools_is_not_sent():
    """The API refuses a choice where there are no tools: one that means nothing is left out, and one that wants a call fails."""
    assert "tool_choice" not in await body(tool_choice=ToolChoice(forbidden={}))
    with pytest.raises(Failed, match="there are no tools") as caught:
        await body(tool_choice=ToolChoice(required={}))
    assert (caught.value.code, caught.value.retryable) == ("REQUEST_REJECTED", False)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"tools": [{"name": "a", "input_schema": "{"}]}, "tools[a].input_schema"),
        ({"tools": [{"name": "a", "input_schema": "true"}]}, "tools[a].input_schema"),
        ({"output_schema": "[" * 100_000}, "output_schema"),
    ],
    ids=["broken", "no object", "too deep"],
)
async def test_a_schema_that_can_not_be_read_is_named(fields, path):
    """A schema that is no object is named by its path; it would be the same at every try."""
    with pytest.raises(Failed, match="must be the text of a JSON object") as caught:
        await body(**fields)
    assert (caught.value.details["field"], caught.value.retryable) == (path, False)


CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {"n": {"anyOf": [{"type": "number"}, {"type": "null"}]}},
}


@pytest.mark.parametrize(
    ("change", "strict"),
    [
        ({}, True),
        ({"additionalProperties": True}, False),
        ({"required": []}, False),
        ({"minProperties": 1}, False),
        ({"properties": {"a": {"type": "object", "properties": {}}}}, False),
        ({"properties": {"a": True}}, False),
        ({"$defs": {"n": {"type": "number", "minimum": 1}}}, False),
    ],
    ids=[
        "closed",
        "open",
        "optional",
        "another word",
        "open inside",
        "no schema",
        "in a definition",
    ],
)
def test_strict_mode_is_for_schemas_that_it_takes(change, strict):
    """A schema is strict if all its objects name all they have, and no word is used that strict mode refuses."""
    assert is_strict(CLOSED | change) is strict


@pytest.mark.parametrize("schema", [CLOSED, {"type": "object"}, {"type": "string"}], ids=range(3))
async def test_a_schema_is_the_format_of_the_reply(schema):
    """An output schema is sent as the reply's format, strict where that works."""
    sent = await body(output_schema=json.dumps(schema))
    assert sent["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "reply", "schema": schema, "strict": schema is CLOSED},
    }


async def test_options_win_but_for_what_fields_decide():
    """Options of the provider's are merged and win; what a field decides can't be set twice."""
    sent = await body(
        thinking_budget=10, provider_options='{"seed": 1, "reasoning_effort": "xhigh"}'
    )
    assert sent == {"messages": [], "reasoning_effort": "xhigh", "seed": 1}
    for name in ("model", "messages", "stream", "n", "max_tokens"):
        with pytest.raises(Failed, match=f"can't set '{name}'; use "):
            await body(provider_options=json.dumps({name: 1}))
