"""ToolCall: the graph's own call, the decision's, and the question about it."""

from __future__ import annotations

from stepgraph.v1 import failure_pb2, interrupt_pb2
from stepgraph_server.core.actions import poll_action, tool_question
from stepgraph_server.core.actions.step import Await, Effect, Fail
from tests.support.core_pieces import compiled, poll_of, state_of, text

GRAPH = compiled(
    """
nodes:
  - {id: a, tool_call: {tool_name: "{{tool}}", args_template: '{"x": "{{x}}"}'}}
  - {id: b, assign: {}}
edges: [{from: a, to: b}]
"""
)
STATE = state_of(GRAPH, tool=text("search"), x=text('"quoted"'))


def test_arguments_are_parsed_before_they_are_filled_in() -> None:
    step = poll_action(poll_of(STATE, "a"))
    assert isinstance(step, Await)
    (effect,) = step.effects
    assert isinstance(effect, Effect)
    assert effect.key == ("tool", "search", "")
    assert rb"{\"x\":\"\\\"quoted\\\"\"}" not in effect.prepared.build(STATE)
    assert b'{"x":"\\"quoted\\""}' in effect.prepared.build(STATE)


def test_what_is_asked_about_is_bound_to_its_digest() -> None:
    one = tool_question(poll_of(STATE, "a"))
    other = tool_question(poll_of(state_of(GRAPH, tool=text("search"), x=text("y")), "a"))
    assert isinstance(one, interrupt_pb2.ToolQuestion)
    assert isinstance(other, interrupt_pb2.ToolQuestion)
    assert one.args == '{"x":"\\"quoted\\""}'
    assert one.digest != other.digest


def test_other_nodes_ask_about_no_call() -> None:
    assert tool_question(poll_of(STATE, "b")) is None


def test_a_call_that_failed_for_good_fails_the_node() -> None:
    why = failure_pb2.Failure(code="X")
    assert poll_action(poll_of(STATE, "a", None, why)) == Fail(failure=why)
