"""What executors may report as a result."""

from __future__ import annotations

import pytest

from stepgraph.v1 import conversation_pb2, failure_pb2, task_pb2, value_pb2
from stepgraph_server.core.inputs import RunLimits
from stepgraph_server.core.results import _check, accept_result, same_result, stored_digests
from tests.support.core_pieces import compiled, started

LARGE = "x" * (300 * 1024)
GRAPHS = {
    "llm": compiled("nodes: [{id: a, llm_infer: {}}]"),
    "tool": compiled('nodes: [{id: a, tool_call: {tool_name: t, args_template: "{}"}}]'),
    "agent": compiled("nodes: [{id: a, delegate: {agent_kind: k, task_template: x}}]"),
}


def accepted(result: task_pb2.TaskResult) -> task_pb2.TaskResult | failure_pb2.Failure:
    kind = result.WhichOneof("kind")
    assert kind is not None
    run = started(GRAPHS[kind])
    (task,) = run.state.tasks.values()
    return accept_result(task, result, RunLimits()) or result


def refused(result: task_pb2.TaskResult) -> str:
    found = accepted(result)
    assert isinstance(found, failure_pb2.Failure)
    return found.code


def tool(**output: object) -> task_pb2.TaskResult:
    made = task_pb2.TaskResult()
    made.tool.output.CopyFrom(value_pb2.Value(**output))  # type: ignore[arg-type]
    return made


def reply(text: str) -> task_pb2.TaskResult:
    made = task_pb2.TaskResult()
    made.llm.message.role = conversation_pb2.ROLE_ASSISTANT
    made.llm.message.content.add().text.text = text
    return made


def test_small_results_are_taken_as_they_are() -> None:
    for result in (tool(text="x"), tool(json="[1]"), tool(), reply("x")):
        assert accepted(result) is result


def test_what_is_too_large_is_refused() -> None:
    assert refused(tool(text=LARGE)) == "PAYLOAD_TOO_LARGE"
    assert refused(reply(LARGE)) == "PAYLOAD_TOO_LARGE"
    shown = tool(text="x")
    shown.tool.content.add().text.text = LARGE
    assert refused(shown) == "PAYLOAD_TOO_LARGE"
    agent = task_pb2.TaskResult()
    agent.agent.output.text = LARGE
    assert refused(agent) == "PAYLOAD_TOO_LARGE"


def test_what_is_no_json_is_refused() -> None:
    assert refused(tool(json="[1")) == "RESULT_INVALID"


def test_a_reply_is_the_assistants_whatever_it_says() -> None:
    result = reply("x")
    result.llm.message.role = conversation_pb2.ROLE_USER
    found = accepted(result)
    assert isinstance(found, task_pb2.TaskResult)
    assert found.llm.message.role == conversation_pb2.ROLE_ASSISTANT


@pytest.mark.parametrize("call_id", ["", "call_1"])
def test_equal_replies_are_the_same_whatever_their_calls_are_called(call_id: str) -> None:
    one, other = reply("x"), reply("x")
    one.llm.message.content.add().tool_call.name = "t"
    other.llm.message.content.add().tool_call.name = "t"
    other.llm.message.content[1].tool_call.id = call_id
    assert same_result(one, other)
    other.llm.message.content[1].tool_call.name = "u"
    assert not same_result(one, other)


def test_parts_of_other_kinds_are_checked_too() -> None:
    effect = task_pb2.TaskResult()
    effect.effect.output.json = "[1"
    assert [each.path for each in _check(effect)] == ["effect.output"]


DIGEST = "sha256:" + "0" * 64
STORED = value_pb2.StoredValue(digest=DIGEST, size_bytes=1, form=value_pb2.VALUE_FORM_TEXT)


def test_results_without_stored_values_refer_to_none() -> None:
    found = task_pb2.TaskResult()
    found.condition.holds = True
    for result in (tool(text="x"), reply("x"), found, task_pb2.TaskResult()):
        assert stored_digests(result) == []
    thinking = reply("x")
    thinking.llm.message.content.add().thinking.text = "hm"
    thinking.llm.message.content.add().tool_call.name = "t"
    assert stored_digests(thinking) == []


def test_stored_values_are_found_wherever_a_result_may_have_one() -> None:
    results = [task_pb2.TaskResult() for _ in range(7)]
    results[0].tool.output.stored.CopyFrom(STORED)
    results[1].tool.content.add().text.stored.CopyFrom(STORED)
    results[2].agent.output.stored.CopyFrom(STORED)
    results[3].effect.output.stored.CopyFrom(STORED)
    results[4].llm.message.content.add().image.stored.CopyFrom(STORED)
    results[5].step.update.variables["x"].stored.CopyFrom(STORED)
    results[5].step.update.messages.add().metadata["k"] = "v"
    block = results[6].llm.message.content.add().tool_result
    block.content.add().file.stored.CopyFrom(STORED)
    for result in results:
        assert stored_digests(result) == [DIGEST], result


def test_a_stored_value_is_named_once() -> None:
    result = task_pb2.TaskResult()
    result.tool.output.stored.CopyFrom(STORED)
    result.tool.content.add().text.stored.CopyFrom(STORED)
    assert stored_digests(result) == [DIGEST]
