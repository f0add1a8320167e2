"""Spawned work: what it sees, and that all of it is gone when its join is decided."""

from __future__ import annotations

import pytest
from google.protobuf.json_format import ParseDict

from stepgraph.v1 import interrupt_pb2, task_pb2, transition_pb2
from stepgraph_server.core.inputs import GoOn, RunLimits, Yield
from stepgraph_server.core.spawn import Spawn
from stepgraph_server.core.spawning import answered, bodies, body_of, locate, next_child
from stepgraph_server.core.state import Carried
from stepgraph_server.core.view import View
from tests.support.core_pieces import (
    activation_of,
    compiled,
    json,
    started,
    state_of,
    succeeded,
    text,
    world,
)

GRAPH = compiled(
    """
nodes:
  - {id: a, step: {program: p, max_turns: 3, variables: [x], include_conversation: true}}
  - {id: w, tool_call: {tool_name: t, args_template: "{}"}}
"""
)


PLACED = compiled("nodes: [{id: a, step: {program: p}, selector: {gpu: big}}]\n")


def _wanted(*specs: dict[str, object], **fields: object) -> transition_pb2.Transition.Spawn:
    return ParseDict({"specs": list(specs), **fields}, transition_pb2.Transition.Spawn())


def _reply(spawn: transition_pb2.Transition.Spawn) -> task_pb2.TaskResult:
    reply = transition_pb2.StepReply(transition=transition_pb2.Transition(spawn=spawn))
    return task_pb2.TaskResult(step=reply)


def test_it_sees_its_input_its_place_and_the_view_of_what_spawned_it() -> None:
    state = state_of(GRAPH, x=text("base"))
    parent = activation_of(GRAPH, "a", Carried(last_result=text("before")))
    parent.delta.overlay["y"] = text("mine")
    spec: dict[str, object] = {"body": {"nodeId": "w"}, "input": {"text": "bolts"}}
    parent.spawn = Spawn.of(2, _wanted({"body": {"nodeId": "w"}}, spec))
    parent.spawn.started = 1
    child = next_child(state, parent)
    assert child is not None
    assert (child.id, child.node.id, child.given) == ("1/a/t2/s1", "w", text("bolts"))
    view = View(state, child.carried, child.delta)
    assert view.variable("item") == text("bolts")
    assert view.variable("item_index") == json("1")
    assert view.variable("x") == text("base")
    assert view.variable("y") == text("mine")
    assert view.carried.last_result == text("before")


def test_a_program_has_a_node_of_its_own_with_what_its_spawner_says_of_executors() -> None:
    state, parent = state_of(PLACED), activation_of(PLACED, "a")
    parent.spawn = Spawn.of(0, _wanted({"body": {"program": "w"}}))
    child = next_child(state, parent)
    assert child is not None
    assert child.node.selector == (("gpu", "big"),)
    assert child.node.action == type(parent.node.action)(program="w")
    child.parent = parent
    assert body_of(state, child) is child.node
    assert list(bodies(state)) == []


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"proceed": {}}, '{"approval":"proceed"}'),
        ({"choose": {"optionId": "x"}}, '{"approval":"choose","choice":"x"}'),
        ({"revise": {"feedback": "no"}}, '{"approval":"revise","feedback":"no"}'),
        (
            {
                "proceedWith": {
                    "variables": {"n": {"json": "3"}, "t": {"text": "x"}},
                    "message": "m",
                }
            },
            '{"approval":"proceed","variables":{"n":3,"t":"x"},"message":"m"}',
        ),
        (
            {"proceedWith": {"variables": {"b": {"blob": {"mediaType": "image/png"}}}}},
            '{"approval":"proceed","variables":{"b":{"kind":"blob"}}}',
        ),
    ],
)
def test_an_answer_is_a_value_that_says_all_of_it(answer: dict[str, object], expected: str) -> None:
    activation = activation_of(GRAPH, "a")
    activation.answer = ParseDict(answer, interrupt_pb2.InterruptAnswer())
    assert answered(activation).json == expected


def test_many_are_started_over_many_decisions_and_a_restart() -> None:
    played = world()
    played.limits = RunLimits(max_work_per_decision=1)
    run = started(GRAPH, played)
    specs: list[dict[str, object]] = [{"body": {"nodeId": "w"}}] * 4
    decision = run.happen(succeeded("1/a/t0/poll", _reply(_wanted(*specs))))
    decisions = 1
    while Yield() in decision.commands:
        run.restart()
        decision = run.happen(GoOn())
        decisions += 1
    assert decisions > 2
    assert len(run.state.spawned) == 4


def test_what_has_ended_is_not_there_any_more() -> None:
    run = started(GRAPH)
    run.happen(succeeded("1/a/t0/poll", _reply(_wanted({"body": {"nodeId": "w"}}))))
    child = locate(run.state, "1/a/t0/s0")
    assert list(run.state.spawned.values()) == [child]
    assert list(bodies(run.state)) == [GRAPH.nodes["w"]]
    run.happen(succeeded("1/a/t0/s0/t0/e0", ParseDict({"tool": {}}, task_pb2.TaskResult())))
    assert not run.state.spawned


def test_an_activation_that_never_was_is_not_found() -> None:
    with pytest.raises((KeyError, ValueError)):
        locate(started(GRAPH).state, "9/x")
