"""Assign: writes by expressions, deletions, and a message."""

from __future__ import annotations

from stepgraph_server.core.actions import poll_action
from stepgraph_server.core.actions.step import Done, Fail
from tests.support.core_pieces import compiled, json, poll_of, state_of, text

GRAPH = compiled(
    """
nodes:
  - {id: a, assign: {set: {y: "vars.x", n: "1 + 1"}, unset: [x], message_template: "x={{x}}"}}
  - {id: b, assign: {}}
edges: [{from: a, to: b}]
"""
)


def test_it_writes_what_its_expressions_give_then_deletes() -> None:
    done = poll_action(poll_of(state_of(GRAPH, x=text("old")), "a"))
    assert isinstance(done, Done)
    assert done.writes == (("n", json("2")), ("y", text("old")), ("x", None))
    assert done.messages[0].content[0].text.text == "x=old"
    assert done.messages[0].metadata["node"] == "a"


def test_empty_it_only_passes_on() -> None:
    assert poll_action(poll_of(state_of(GRAPH), "b")) == Done()


def test_an_expression_that_fails_fails_the_node() -> None:
    step = poll_action(poll_of(state_of(GRAPH), "a"))
    assert isinstance(step, Fail)
    assert step.failure.code == "EXPRESSION_FAILED"
