"""Which nodes run next."""

from __future__ import annotations

import pytest

from stepgraph.v1 import event_pb2, failure_pb2
from stepgraph_server.core.joins import GotoConflict, bring_together, plan_next
from stepgraph_server.core.state import Activation, Carried, RunState
from tests.support.core_pieces import activation_of, compiled, state_of, text

GRAPH = compiled(
    """
nodes:
  - {id: a, assign: {}}
  - {id: b, assign: {}}
  - {id: c, assign: {}}
  - {id: J, join: all, assign: {}}
edges:
  - {from: a, to: b}
  - {from: a, to: c}
  - {from: b, to: J}
  - {from: c, to: J}
  - {from: J, to: a, max_traversals: 3}
"""
)


def followed(state: RunState, node: str, *edges: str) -> Activation:
    activation = activation_of(GRAPH, node, Carried(last_result=text(node)))
    activation.edges = tuple(
        event_pb2.EdgeOutcome(edge_id=edge, verdict=event_pb2.EDGE_VERDICT_FOLLOWED)
        for edge in edges
    )
    state.activations[activation.id] = activation
    return activation


def test_the_first_to_run_is_the_entry_point() -> None:
    plan = plan_next(state_of(GRAPH))
    assert [node.id for node, _ in plan.frontier] == ["a"]
    assert not plan.arrivals


def test_a_join_waits_for_what_is_live_and_goes_then() -> None:
    state = state_of(GRAPH)
    followed(state, "a", "a.c")
    followed(state, "b", "b.J")
    waiting = plan_next(state)
    assert [node.id for node, _ in waiting.frontier] == ["c"]
    state.arrivals, state.activations = waiting.arrivals, {}
    followed(state, "c", "c.J")
    released = plan_next(state)
    assert [(node.id, carried.last_result) for node, carried in released.frontier] == [
        ("J", text("c"))
    ]
    assert not released.arrivals


def test_planning_changes_nothing() -> None:
    state = state_of(GRAPH)
    state.arrivals = {"J": {"b": Carried()}}
    followed(state, "c", "c.J")
    plan_next(state)
    assert list(state.arrivals["J"]) == ["b"]


def test_the_last_source_gives_the_carried_part_and_the_first_error_stays() -> None:
    one, two = failure_pb2.Failure(code="ONE"), failure_pb2.Failure(code="TWO")
    a, b = ("a", Carried()), ("b", Carried(last_error=one))
    c = ("c", Carried(last_error=two, paradigm="p"))
    assert bring_together("x", [a, b, c]) == Carried(last_error=one, paradigm="p")
    assert bring_together("x", [a, ("b", Carried(paradigm="q"))]) == Carried(paradigm="q")
    assert bring_together("x", [a]) is a[1]


def test_what_a_goto_carries_is_the_input_whoever_else_arrives() -> None:
    a, b = ("a", Carried(handed=text("x"))), ("b", Carried(paradigm="p"))
    assert bring_together("n", [a, b]) == Carried(handed=text("x"), paradigm="p")
    assert bring_together("n", [a, ("c", Carried(handed=text("x")))]).handed == text("x")


def test_gotos_that_carry_different_things_are_named() -> None:
    with pytest.raises(GotoConflict) as caught:
        bring_together("n", [("a", Carried(handed=text("x"))), ("b", Carried(handed=text("y")))])
    assert caught.value.failure.details == {"target": "n", "nodes": "a,b"}
