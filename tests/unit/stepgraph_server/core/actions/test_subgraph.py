"""Subgraph: what is mapped to a child run, and what is mapped back from its end."""

from __future__ import annotations

import pytest

from stepgraph.v1 import failure_pb2, graph_pb2, run_pb2, task_pb2
from stepgraph_server.core.actions import poll_action
from stepgraph_server.core.actions.step import Await, Child, Done, Fail
from stepgraph_server.core.actions.subgraph import child_label
from stepgraph_server.core.instants import SECOND
from tests.support.core_pieces import compiled, json, poll_of, state_of, text

NODE = "nodes: [{{id: a, action: {{subgraph: {{graph: {{reference: other}}, {fields}}}}}}}]\n"


def _child(fields: str, **variables: object) -> Child:
    state = state_of(compiled(NODE.format(fields=fields)))
    state.variables.update(variables)  # type: ignore[arg-type]  # values
    step = poll_action(poll_of(state, "a"))
    assert isinstance(step, Await), step
    [child] = step.effects
    assert isinstance(child, Child)
    return child


def test_a_lone_placeholder_hands_the_value_on_as_it_is() -> None:
    stored = json('{"n": 9007199254740993}')
    stored.stored.digest = "sha256:1"
    child = _child('input: {x: "{{kept}}", y: "{{ask?}}"}', kept=stored)
    assert child.input.variables["x"] == stored
    assert child.input.variables["y"] == text("")


def test_what_a_path_leads_to_keeps_its_kind_and_anything_else_is_text() -> None:
    child = _child(
        'input: {n: "{{o.n}}", list: "{{o.list}}", said: "{{o.said}}", long: "n is {{o.n}}"}',
        o=json('{"n": 9007199254740993, "list": [1], "said": "hi"}'),
    )
    given = dict(child.input.variables.items())
    assert given == {
        "n": json("9007199254740993"),
        "list": json("[1]"),
        "said": text("hi"),
        "long": text("n is 9007199254740993"),
    }


def test_it_says_how_long_the_child_may_take_and_in_how_many_supersteps() -> None:
    child = _child("time_limit: 5s, max_iterations: 7")
    assert (child.time_limit, child.max_iterations) == (5 * SECOND, 7)
    assert _child("input: {}").time_limit is None


def test_an_unset_name_fails_the_node() -> None:
    state = state_of(compiled(NODE.format(fields='input: {x: "{{nothing}}"}')))
    step = poll_action(poll_of(state, "a"))
    assert isinstance(step, Fail)
    assert step.failure.code == "TEMPLATE_FAILED"


def test_its_output_is_the_childs_with_the_variables_that_are_mapped() -> None:
    state = state_of(compiled(NODE.format(fields='output: {mine: theirs, gone: "maybe?"}')))
    result = task_pb2.TaskResult()
    result.graph.output.text = "fine"
    result.graph.variables["theirs"].text = "kept"
    step = poll_action(poll_of(state, "a", None, result))
    assert isinstance(step, Done)
    assert step.writes == (("gone", None), ("mine", text("kept")))
    assert step.value == text("fine")
    [message] = step.messages
    assert message.metadata["node"] == "a"


def test_a_child_without_output_says_nothing() -> None:
    state = state_of(compiled(NODE.format(fields="input: {}")))
    result = task_pb2.TaskResult(graph=task_pb2.TaskResult.Graph(run_id="c"))
    assert poll_action(poll_of(state, "a", None, result)) == Done()


def test_a_failure_is_the_nodes() -> None:
    state = state_of(compiled(NODE.format(fields="input: {}")))
    why = failure_pb2.Failure(code="BROKEN")
    assert poll_action(poll_of(state, "a", None, why)) == Fail(failure=why)


@pytest.mark.parametrize(
    ("graph", "label"),
    [
        ({"reference": "a@3"}, "graph a@3"),
        ({"definition": {"name": "inner"}}, "graph inner"),
        ({"definition": {}}, "graph (inline)"),
        ({"same_version": {}}, "graph g"),
    ],
)
def test_a_child_is_called_by_its_graph(graph: dict[str, object], label: str) -> None:
    state = state_of(compiled(NODE.format(fields="input: {}")))
    assert child_label(state, graph_pb2.GraphRef(**graph)) == label  # type: ignore[arg-type]  # by name


def test_what_it_starts_with_is_the_same_bytes_each_time() -> None:
    child = _child('input: {b: "1", a: "2"}')
    state = state_of(compiled(NODE.format(fields="input: {}")))
    assert run_pb2.RunInput.FromString(child.build(state)) == child.input
    assert child.build(state) == child.build(state)
