"""What a step program asks for, in the schema's words, and how results are read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import BaseModel, ValidationError

from stepgraph.v1 import conversation_pb2, llm_pb2, transition_pb2, value_pb2
from stepgraph_client import Failed, Graph, effects, limits, retry
from stepgraph_client.effects import EffectFailed, ModelReply, await_effects, outcome, value_in
from stepgraph_client.task_results import text_block
from stepgraph_client.transitions import ask
from stepgraph_client.values import to_value
from tests.support.step_turns import answered, failed, model_said, node_gave, slept, tool_gave

Result = transition_pb2.EffectResult


class Hit(BaseModel):
    """A hit."""

    path: str


# ---- asking ----------------------------------------------------------------------------------


def test_a_tool_takes_its_arguments_by_name_as_an_object_or_as_json():
    """All three say the same; a number stays as it was written in JSON text."""
    assert effects.tool("t", a=1, b="x").message.tool.args == '{"a":1,"b":"x"}'
    assert effects.tool("t", {"a": 1}).message.tool.args == '{"a": 1}'
    assert effects.tool("t", '{"a":9007199254740993}').message.tool.args == '{"a":9007199254740993}'
    assert effects.tool("t").message.tool.args == "{}"
    assert effects.tool("t", name="x").message.tool.args == '{"name":"x"}'


def test_arguments_in_two_ways_are_refused():
    """One of them would silently win."""
    with pytest.raises(TypeError, match="not both"):
        effects.tool("t", {"a": 1}, b=2)


def test_a_model_is_asked_with_all_that_a_request_has():
    """Every keyword lands in its field, and the prompt is the last message."""

    def look(path: str) -> str:
        """Look."""
        return path

    request = effects.llm(
        "and now?",
        messages=["first"],
        include_conversation=True,
        model="m",
        system_prompt="be brief",
        tools=[look, llm_pb2.ToolDefinition(name="other")],
        temperature=0.5,
        max_tokens=10,
        thinking_budget=5,
        output_schema=Hit,
        streaming=True,
        provider_options={"seed": 1},
    ).message.llm.request
    assert [each.content[0].text.text for each in request.messages] == ["first", "and now?"]
    assert [tool.name for tool in request.tools] == ["look", "other"]
    assert "path" in request.tools[0].input_schema
    assert "path" in request.output_schema
    assert (request.model, request.temperature, request.max_tokens) == ("m", 0.5, 10)
    assert request.include_conversation
    assert request.streaming


def test_a_misspelt_keyword_is_refused():
    """As everywhere in the builder, with the name that was meant."""
    with pytest.raises(TypeError, match="did you mean 'temperature'"):
        effects.llm("hi", temprature=0.5)


def test_a_sleep_lasts_or_ends_at_a_time():
    """A length of time, or a point in it that says where it is."""
    assert effects.sleep("90s").message.sleep.duration.seconds == 90
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert effects.sleep(noon).message.sleep.until.ToDatetime(UTC) == noon
    with pytest.raises(ValueError, match="time zone"):
        effects.sleep(datetime(2026, 1, 1))  # noqa: DTZ001


def test_agents_graphs_and_custom_work():
    """The other kinds, with and without an input."""
    handed = effects.delegate("researcher", "find it").message.delegate
    assert (handed.agent_kind, handed.task) == ("researcher", "find it")
    graph = Graph("child")
    graph.assign("end")
    assert effects.graph(graph, {"a": 1}).message.graph.graph_ref.definition.name == "child"
    assert effects.graph("child@2").message.graph.graph_ref.reference == "child@2"
    assert not effects.graph("child@2").message.graph.HasField("input")
    custom = effects.custom("mail", b"x").message.custom
    assert (custom.kind, custom.payload.blob.data) == ("mail", b"x")


def test_options_make_another_effect():
    """Tries, limits and labels are put on a copy."""
    plain = effects.tool("t")
    placed = plain.options(retry=retry(max_tries=2), limits=limits(run="5s"), selector={"gpu": "1"})
    assert placed.message.options.retry.max_tries == 2
    assert placed.message.options.selector == {"gpu": "1"}
    assert not plain.message.HasField("options")


def test_several_are_awaited_in_one_transition():
    """ALL wakes once, EACH whenever some have ended."""
    both = await_effects(effects.tool("a"), effects.tool("b")).transition.await_effects
    assert [each.tool.name for each in both.effects] == ["a", "b"]
    assert both.wake == transition_pb2.WAKE_POLICY_ALL
    each = await_effects(effects.tool("a"), each=True).transition.await_effects
    assert each.wake == transition_pb2.WAKE_POLICY_EACH


# ---- results ---------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["tool", [effects.tool("t")], ask("ok?"), None])
def test_what_is_no_effect_is_not_awaited_at_once(wrong):
    """Most often a list that lacks its star, or a question."""
    with pytest.raises(TypeError, match=f"`\\*effects` for a list.*found {type(wrong).__name__}"):
        await_effects(effects.sleep("1s"), wrong)


def test_every_kind_of_result_has_an_outcome():
    """What Python has for each variant."""
    value = to_value({"a": 1})
    assert outcome(tool_gave(0, 0, {"a": 1})) == {"a": 1}
    assert outcome(model_said(0, 0, "hi")) == "hi"
    assert outcome(node_gave(0, 0, [1])) == [1]
    assert outcome(slept(0, 0)) is None
    assert outcome(answered(0, "yes")) == "yes"
    assert outcome(answered(0, 1, 2)) == [1, 2]
    assert outcome(Result(agent=Result.Agent(output=value))) == {"a": 1}
    assert outcome(Result(graph=Result.Graph(output=value))) == {"a": 1}
    assert outcome(Result(custom=Result.Custom(output=value))) == {"a": 1}
    assert outcome(Result(tool=Result.Tool())) is None
    assert value_in(Result(answer=Result.Answer())) == value_pb2.Value()


def test_what_a_tool_shows_to_the_model_only_is_its_text():
    """Content without an output is not lost."""
    shown = transition_pb2.ToolResult(content=[text_block("a"), text_block("b")])
    assert outcome(Result(tool=Result.Tool(result=shown))) == "ab"


def test_a_kind_of_result_that_is_newer_is_no_empty_one():
    """Whoever can't read it must not go on as if nothing had come back."""
    for read in (outcome, effects.sleep("1s").read, effects.llm("x").read):
        with pytest.raises(Failed, match="upgrade stepgraph") as caught:
            read(Result(label="something new"))
        assert caught.value.retryable is False


def test_failures_and_errors_of_tools_are_raised():
    """Both are one exception, with the failure and what it was."""
    with pytest.raises(EffectFailed, match="tool t: BROKEN: no") as caught:
        outcome(failed(0, 0))
    assert (caught.value.code, caught.value.label) == ("BROKEN", "tool t")
    with pytest.raises(EffectFailed) as reported:
        outcome(tool_gave(0, 0, {"why": "no"}, is_error=True))
    assert (reported.value.code, reported.value.failure.message) == ("TOOL_ERROR", '{"why": "no"}')
    assert reported.value.result.tool.result.is_error


def test_a_result_is_read_as_a_type():
    """Outputs and replies become models, or say where they don't fit."""
    tool = effects.tool("t").returning(list[Hit])
    assert tool.read(tool_gave(0, 0, [{"path": "a"}])) == [Hit(path="a")]
    asked = effects.llm("x").returning(Hit)
    assert asked.read(model_said(0, 0, '{"path": "b"}')) == Hit(path="b")
    with pytest.raises(ValidationError, match="path"):
        asked.read(model_said(0, 0, "{}"))
    with pytest.raises(EffectFailed):
        tool.read(failed(0, 0))


def test_a_reply_has_text_and_calls():
    """The parts of a message that programs look at."""
    call = conversation_pb2.ToolCallBlock(id="1", name="t", args="{}")
    response = llm_pb2.LlmResponse(usage=llm_pb2.Usage(input_tokens=3))
    response.message.content.extend(
        [text_block("a"), conversation_pb2.ContentBlock(tool_call=call), text_block("b")]
    )
    reply = effects.llm("x").read(Result(llm=Result.Llm(response=response)))
    assert isinstance(reply, ModelReply)
    assert (reply.text, str(reply), reply.usage.input_tokens) == ("ab", "ab", 3)
    assert [each.name for each in reply.calls] == ["t"]
    assert reply.message is response.message or reply.message == response.message


def test_text_that_is_stored_says_how_it_is_read():
    """A half text would be a lie."""
    block = conversation_pb2.ContentBlock()
    block.text.stored.digest = "sha256:0"
    with pytest.raises(ValueError, match=r"ctx\.text_of"):
        effects.text_in(conversation_pb2.Message(content=[text_block("a"), block]))


def test_calls_are_answered_in_their_order():
    """Values, errors of tools and failures, each under the id of its call; too few are refused."""
    response = llm_pb2.LlmResponse()
    for name in ("a", "b", "c"):
        call = conversation_pb2.ToolCallBlock(id=name, provider_id=f"p{name}", name="t")
        response.message.content.add().tool_call.CopyFrom(call)
    reply = ModelReply(response=response)
    with pytest.raises(EffectFailed) as reported:
        outcome(tool_gave(0, 0, "no such page", is_error=True))
    with pytest.raises(EffectFailed) as broken:
        outcome(failed(0, 0))
    message = reply.answered([{"n": 1}, reported.value, broken.value])
    assert message.role == conversation_pb2.ROLE_TOOL
    blocks = [block.tool_result for block in message.content]
    assert [(each.call_id, each.provider_id) for each in blocks] == [
        ("a", "pa"),
        ("b", "pb"),
        ("c", "pc"),
    ]
    assert [each.content[0].text.text for each in blocks] == [
        '{"n": 1}',
        "no such page",
        "BROKEN: no",
    ]
    assert [each.is_error for each in blocks] == [False, True, True]
    with pytest.raises(ValueError, match="3 calls, and there are 1 results"):
        reply.answered(["x"])
