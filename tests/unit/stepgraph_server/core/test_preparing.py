"""Inputs of outstanding tasks: made again, the same as before, whoever asks."""

from __future__ import annotations

from stepgraph.v1 import task_pb2
from stepgraph_server.core.actions.inputs import NO_INPUT
from stepgraph_server.core.preparing import poll_of, prepare
from tests.support.core_pieces import compiled, started

TOOL = compiled('nodes: [{id: a, tool_call: {tool_name: t, args_template: "{\\"n\\": 1}"}}]')


def test_the_input_of_a_task_is_made_again_after_a_restart() -> None:
    run = started(TOOL)
    run.restart()
    (task,) = run.state.tasks.values()
    assert task.prepared is None
    made = task_pb2.TaskInput.FromString(prepare(run.state, task).build(run.state))
    assert (made.tool.name, made.tool.args) == ("t", '{"n":1}')
    assert prepare(run.state, task) is task.prepared


def test_a_sleep_has_no_input() -> None:
    run = started(compiled("nodes: [{id: a, sleep: 5s}]"))
    run.restart()
    (task,) = run.state.tasks.values()
    assert prepare(run.state, task) is NO_INPUT


def test_who_polls_without_a_turn_sees_no_world() -> None:
    """A fold must not depend on who is connected now."""
    run = started(TOOL)
    (activation,) = run.state.activations.values()
    poll = poll_of(run.state, activation, 0, None)
    assert (poll.turn, poll.results, poll.world) == (0, (), None)
