"""What a program is polled with: its input, which never changes, and as much of its history as is needed."""

from __future__ import annotations

import pytest

from stepgraph.v1 import task_pb2, transition_pb2
from stepgraph_server.core.preparing import prepare
from stepgraph_server.core.state import Carried, RunState, Task
from stepgraph_server.core.step_context import PollInput, program_input
from stepgraph_server.core.templates import RenderError
from tests.support.core_pieces import activation_of, compiled, started, state_of, succeeded, text

GRAPH = compiled("nodes: [{id: a, step: {program: p}}]\n")
TEMPLATE = compiled('nodes: [{id: a, step: {program: p, input_template: \'{"q": "{{who}}"}\'}}]\n')


def test_the_input_is_the_last_result_and_empty_before_there_is_one() -> None:
    state = state_of(GRAPH)
    assert program_input(state, activation_of(GRAPH, "a", Carried(last_result=text("x")))) == text(
        "x"
    )
    assert program_input(state, activation_of(GRAPH, "a")).WhichOneof("kind") is None


def test_a_template_goes_before_the_last_result_and_a_carry_before_both() -> None:
    state = state_of(TEMPLATE, who=text("anna"))
    plain = Carried(last_result=text("x"))
    assert program_input(state, activation_of(TEMPLATE, "a", plain)).json == '{"q":"anna"}'
    handed = Carried(last_result=text("x"), handed=text("carried"))
    assert program_input(state, activation_of(TEMPLATE, "a", handed)) == text("carried")


def test_a_template_that_can_not_be_filled_in_says_so() -> None:
    with pytest.raises(RenderError, match="who"):
        program_input(state_of(TEMPLATE), activation_of(TEMPLATE, "a"))


def test_a_template_that_fails_fails_the_node_before_anybody_is_asked() -> None:
    run = started(TEMPLATE)
    assert run.state.failure is not None
    assert run.state.failure.code == "TEMPLATE_FAILED"
    assert not [event for event in run.events if event.HasField("task_scheduled")]


def test_only_the_process_that_holds_the_turns_is_spared_them() -> None:
    run = started(GRAPH)
    reply = transition_pb2.StepReply(holds_turns=True)
    reply.transition.await_effects.effects.add().tool.name = "t"
    run.happen(succeeded("1/a/t0/poll", task_pb2.TaskResult(step=reply)))
    result = task_pb2.TaskResult()
    result.tool.output.text = "ok"
    run.happen(succeeded("1/a/t0/e0", result))
    task = run.state.tasks["1/a/t1/poll"]
    assert _context(run.state, task).history_start == 1
    task.instance = "another"
    assert len(_context(run.state, task).history) == 1
    assert isinstance(prepare(run.state, task), PollInput)


def _context(state: RunState, task: Task) -> transition_pb2.StepContext:
    return task_pb2.TaskInput.FromString(PollInput(task).build(state)).step
