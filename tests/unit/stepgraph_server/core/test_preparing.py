"""Inputs of outstanding tasks: made again, the same as before, whoever asks."""

from __future__ import annotations

import pytest

from stepgraph.v1 import conversation_pb2, task_pb2
from stepgraph_server.core.actions.inputs import NO_INPUT
from stepgraph_server.core.preparing import NotPrepared, poll_of, prepare
from tests.support.core_pieces import compiled, started, succeeded, world

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


def test_an_action_that_asks_for_something_else_now_has_no_input_for_it() -> None:
    """A fork may change the state or the graph under a task; it says why that does not fit."""
    run = started(TOOL)
    (task,) = run.state.tasks.values()
    task.prepared, task.index = None, 3
    with pytest.raises(NotPrepared, match="a does not ask for it any more"):
        prepare(run.state, task)


def test_a_call_that_has_an_answer_by_now_has_no_input() -> None:
    """The model's call is judged by what it was offered."""
    offering = world()
    offering.offer("search", '{"type": "object"}')
    graph = compiled(
        "nodes: [{id: a, llm_infer: {include_tool_definitions: true}}, {id: b, run_requested_tools: {}}]\n"
        "edges: [{from: a, to: b}]"
    )
    run = started(graph, offering)
    (task,) = run.state.tasks.values()
    reply = task_pb2.TaskResult()
    reply.llm.message.role = conversation_pb2.ROLE_ASSISTANT
    reply.llm.message.content.add().tool_call.name = "search"
    run.happen(succeeded(task.id, reply))
    (task,) = run.state.tasks.values()
    task.prepared = None
    run.state.tool_sets.clear()
    with pytest.raises(NotPrepared, match="b has an answer to it already"):
        prepare(run.state, task)
