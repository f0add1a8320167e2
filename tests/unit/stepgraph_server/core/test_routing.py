"""Conditions that are not evaluated here, and how edges are described."""

from __future__ import annotations

import pytest

from stepgraph.v1 import event_pb2
from stepgraph_server.core.routing import condition_holds, dead_end, describe
from stepgraph_server.core.state import Carried, Delta
from stepgraph_server.core.view import View
from tests.support.core_pieces import compiled, state_of

GRAPH = compiled(
    """
paradigms: {p: {}}
nodes: [{id: a, assign: {}}, {id: b, assign: {}}]
edges:
  - {id: always, from: a, to: b, when: always, max_traversals: 1}
  - {id: cel, from: a, to: b, when: {expression: "1 > 2"}}
  - {id: custom, from: a, to: b, when: {custom: good}}
  - {id: equals, from: a, to: b, when: {state_equals: {variable: x, value: y}}}
  - {id: paradigm, from: a, to: b, when: {paradigm_equals: p}}
  - {id: past, from: a, to: b, when: {iteration_exceeds: 3}}
  - {id: calls, from: a, to: b, when: has_tool_calls}
"""
)


def test_edges_are_described_without_values_of_the_state() -> None:
    assert [describe(edge) for edge in GRAPH.edges] == [
        "always",
        "1 > 2",
        "custom good",
        "x == 'y'",
        "paradigm == 'p'",
        "iterations > 3",
        "has_tool_calls",
    ]


def test_a_dead_end_lists_what_became_of_each_edge() -> None:
    verdicts = [event_pb2.EDGE_VERDICT_SPENT, event_pb2.EDGE_VERDICT_NOT_CONSIDERED, 99]
    edges = tuple(
        event_pb2.EdgeOutcome(edge_id=edge.id, verdict=verdict)  # type: ignore[arg-type]
        for edge, verdict in zip(GRAPH.edges, verdicts, strict=False)
    )
    why = dead_end(state_of(GRAPH), GRAPH.nodes["a"], edges)
    assert why.details == {
        "always": "always: is spent",
        "cel": "1 > 2: was not considered",
        "custom": "custom good: unknown",
    }


def test_what_executors_or_other_edges_decide_is_not_evaluated_here() -> None:
    view = View(state_of(GRAPH), Carried(), Delta())
    for kind in ("custom", "otherwise"):
        with pytest.raises(AssertionError):
            condition_holds(kind, None, None, view)  # type: ignore[arg-type]
