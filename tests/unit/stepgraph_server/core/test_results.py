"""What executors may report as a result."""

from __future__ import annotations

import pytest

from stepgraph.v1 import conversation_pb2, failure_pb2, task_pb2, value_pb2
from stepgraph_server.core.inputs import RunLimits
from stepgraph_server.core.results import _check, accept_result, same_result
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
    step = task_pb2.TaskResult()
    step.step.update.variables["_approval"].text = "proceed"
    assert _check(step)
