"""What is kept of a step program: results are told once, in request order, and finished turns stay as they were."""

from __future__ import annotations

from google.protobuf.json_format import ParseDict

from stepgraph.v1 import failure_pb2, interrupt_pb2, task_pb2, transition_pb2
from stepgraph_server.core.instants import Instant
from stepgraph_server.core.step_program import StepProgram, effect_result

NOW = Instant(5)
TOOL = {"tool": {"name": "t"}}


def _reply(wake: str = "WAKE_POLICY_ALL", effects: int = 2) -> transition_pb2.StepReply:
    awaited = {"wake": wake, "effects": [TOOL] * effects}
    return ParseDict({"transition": {"await_effects": awaited}}, transition_pb2.StepReply())


def _awaiting(wake: str = "WAKE_POLICY_ALL") -> StepProgram:
    program = StepProgram()
    program.poll()
    program.answer(_reply(wake), NOW, 0)
    program.started = 2
    return program


def _tool(text: str) -> task_pb2.TaskResult:
    return ParseDict({"tool": {"output": {"text": text}}}, task_pb2.TaskResult())


def test_results_are_told_in_request_order_and_once() -> None:
    program = _awaiting()
    program.end(0, 1, "tool t", _tool("b"))
    assert not program.can_go_on
    program.end(0, 0, "tool t", _tool("a"))
    assert program.can_go_on
    program.poll()
    told = [transition_pb2.EffectResult.FromString(each) for each in program.told]
    assert [each.tool.result.output.text for each in told] == ["a", "b"]
    program.answer(_reply(effects=0), NOW, 0)
    program.poll()
    assert program.told == ()


def test_each_wakes_as_soon_as_something_has_ended() -> None:
    program = _awaiting("WAKE_POLICY_EACH")
    assert not program.can_go_on
    program.end(0, 1, "tool t", _tool("b"))
    assert program.can_go_on


def test_what_was_not_started_goes_first() -> None:
    program = _awaiting()
    program.started = 1
    assert program.can_go_on


def test_a_program_that_is_polled_can_not_go_on_unless_its_poll_failed() -> None:
    program = StepProgram()
    program.poll()
    assert not program.can_go_on
    program.polling, program.failure = False, failure_pb2.Failure(code="X")
    assert program.can_go_on


def test_an_effect_ends_with_what_its_kind_gives() -> None:
    answer = interrupt_pb2.InterruptAnswer()
    answer.reply.value.text = "yes"
    refusal = interrupt_pb2.InterruptAnswer()
    refusal.failed.failure.code = "NO"
    agent = ParseDict({"agent": {"output": {"text": "x"}, "usage": {}}}, task_pb2.TaskResult())
    custom = ParseDict({"effect": {"output": {"text": "x"}}}, task_pb2.TaskResult())
    kinds = [
        transition_pb2.EffectResult.FromString(effect_result(3, 1, "l", ended)).WhichOneof("kind")
        for ended in (
            *(_tool("a"), agent, custom, task_pb2.TaskResult()),
            *(failure_pb2.Failure(code="X"), answer, refusal),
        )
    ]
    assert kinds == ["tool", "agent", "custom", "slept", "failed", "answer", "failed"]


def test_the_holder_is_forgotten_with_what_it_held() -> None:
    program = _awaiting()
    program.instance, program.holds = "i1", True
    program.forget_holder()
    assert (program.instance, program.holds) == ("", False)
