"""Delegate: a task of the graph's own, or the decision's."""

from __future__ import annotations

from stepgraph.v1 import failure_pb2, state_pb2, task_pb2
from stepgraph_server.core.actions import poll_action
from stepgraph_server.core.actions.step import Await, Done, Effect, Fail
from stepgraph_server.core.state import Carried
from tests.support.core_pieces import compiled, poll_of, state_of, text

GRAPH = compiled(
    """
nodes:
  - {id: a, delegate: {agent_kind: critic, task_template: "Judge {{x}}"}}
  - {id: b, delegate: {agent_kind: editor}}
edges: [{from: a, to: b}]
"""
)
WANTED = Carried(
    decision=state_pb2.GraphDecision(
        delegate=state_pb2.GraphDecision.Delegate(agent_kind="critic", task="t", call_id="c")
    )
)


def effect_of(node: str, carried: Carried | None = None) -> Effect:
    step = poll_action(poll_of(state_of(GRAPH, x=text("it")), node, carried))
    assert isinstance(step, Await)
    (effect,) = step.effects
    assert isinstance(effect, Effect)
    return effect


def test_a_kind_of_the_node_wins_over_the_decisions() -> None:
    assert effect_of("a").key == ("agent", "critic")
    carried_out = effect_of("b", WANTED)
    assert (carried_out.key, carried_out.call_id) == (("agent", "editor"), "c")


def test_without_a_decision_there_is_nothing_to_carry_out() -> None:
    step = poll_action(poll_of(state_of(GRAPH), "b"))
    assert isinstance(step, Fail)
    assert step.failure.code == "NO_DECISION"


def test_a_task_that_failed_fails_the_node() -> None:
    why = failure_pb2.Failure(code="X")
    assert poll_action(poll_of(state_of(GRAPH), "a", None, why)) == Fail(failure=why)


def test_what_it_gave_is_the_result() -> None:
    result = task_pb2.TaskResult()
    result.agent.output.text = "good"
    done = poll_action(poll_of(state_of(GRAPH), "a", None, result))
    assert isinstance(done, Done)
    assert done.value == text("good")
    assert not done.decides
