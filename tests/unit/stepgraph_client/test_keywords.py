"""The builder says at the call what is misspelt, and what was expected where something else was given."""

from __future__ import annotations

import re
import time

import pytest

from stepgraph.v1.graph_pb2 import NodeAction
from stepgraph_client import conditions, policies
from stepgraph_client.graphs import Graph, GraphBuildError
from stepgraph_client.keywords import check_names, checked, closest
from stepgraph_client.requests import RunOptions

g = Graph("g")

WRONG = [
    (lambda: Graph("x", defualt_model="m"), "Graph('x') has no keyword 'defualt_model'; did you mean 'default_model'?"),
    (lambda: g.llm("a", promt="p"), "llm('a') has no keyword 'promt'; did you mean 'prompt'?"),
    (lambda: g.edge("a", "b", max_traversal=2), "edge('a', 'b') has no keyword 'max_traversal'; did you mean 'max_traversals'?"),
    (lambda: g.assign("a", value={}), "did you mean 'values'?"),
    (lambda: g.edge("a", "b", colour="red"), "there are id, max_traversals, handoff, source, target, when"),
    (lambda: policies.retry(max_tires=3), "retry() has no keyword 'max_tires'; did you mean 'max_tries'?"),
    (lambda: g.assign("a", {"x": 1}), "assign('a'): values['x'] takes text, not 1; write '1'"),
    (lambda: g.end(["a", "b"]), "end: expected names, found ['a', 'b']; write end('a', 'b')"),
    (lambda: g.end(1), "end(): node_ids takes text, not 1"),
    (lambda: g.edge("a", "b", when="Otherwise"), "has_tool_calls() or otherwise(), not 'Otherwise'; write otherwise()"),
    (lambda: g.edge("a", "b", when="is_warm"), "not 'is_warm'; write custom('is_warm')"),
    (lambda: g.edge("a", "b", when=conditions.otherwise), "not the function otherwise; call it: otherwise()"),
    (lambda: g.tool("a", "t", join="All"), "tool('a'): join takes one of 'any', 'all', not 'All'; did you mean 'all'?"),
    (lambda: g.llm("a", tools=["x", 1]), "llm('a'): tools[1] takes text, not 1"),
    (lambda: g.llm("a", limits={"run": "3s"}), "llm('a'): limits takes limits(…), not {'run': '3s'}"),
    (lambda: g.llm("a", max_tokens=True), "max_tokens takes a whole number, not True"),
    (lambda: g.llm("a", temperature="hot"), "temperature takes a number, not 'hot'"),
    (lambda: g.llm("a", output_schema=int), "takes text or a mapping or a pydantic model, not <class 'int'>"),
    (lambda: g.llm("a", model=None), "llm('a'): model takes text, not None; leave it out"),
    (lambda: g.node("a", conditions.always()), "node('a'): action takes a NodeAction, not a EdgeCondition"),
    (lambda: g.assign("a", unset="x"), "unset takes a list of texts, not 'x'; write ['x']"),
    (lambda: g.sleep("a", 3), 'sleep(\'a\'): span takes a length of time such as "30s"'),
    (lambda: g.subgraph("a", {}), "a graph is a reference such as 'name@3', a Graph or a StateGraph, not a dict"),
    (lambda: g.reducer("x", "appnd"), "there is no reducer 'appnd'; did you mean 'append'?"),
    (lambda: g.assign("a", message="x" * 100, unset=3), "unset takes a list of texts, not 3"),
    (lambda: g.llm("a", metadata=["x" * 100]), "metadata takes a mapping, not ['" + "x" * 38 + "…"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "text"), WRONG)
def test_what_is_wrong_is_said_at_the_call_with_what_was_meant(call, text) -> None:
    """A typo or a wrong kind is a GraphBuildError with the remedy, and adds nothing to the graph."""
    with pytest.raises(GraphBuildError, match=re.escape(text)):
        call()
    assert not g.build().nodes
    assert not g.build().edges


def test_what_is_right_passes() -> None:
    """Every kind that the annotations allow is taken."""
    graph = Graph("ok", approval=["x*"], time_limit="1h", metadata={"a": "b"})
    graph.llm("a", tools=policies.only("x"), temperature=1, retry=policies.retry(max_tries=2))
    graph.llm("b", tools=("x", "y"), interrupt=policies.question("sure?"), join="all")
    graph.approval("c", "which?", {"x": "X"})
    graph.node("d", NodeAction(assign=NodeAction.Assign()))
    graph.subgraph("e", None, input={"x": "{{y}}"})
    assert len(graph.build().nodes) == 5


def test_a_missing_argument_is_told_in_pythons_own_words() -> None:
    """What Python itself refuses is left to it."""
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'node_id'"):
        g.llm()


def test_the_options_of_a_start_are_not_dropped_either() -> None:
    """A keyword of a call that does not exist is a TypeError, as Python has it."""
    with pytest.raises(TypeError, match=re.escape("did you mean 'labels'?")):
        check_names("start_run()", {"lables": {}}, RunOptions)
    check_names("start_run()", {"labels": {}, "input": 1}, RunOptions)


def test_every_annotation_of_the_builder_can_be_checked() -> None:
    """No function of the builder has a parameter of a kind that the check has no words for."""
    for name, function in vars(Graph).items():
        if callable(function) and not name.startswith("__") and hasattr(function, "__wrapped__"):
            with pytest.raises((GraphBuildError, TypeError)):
                function(
                    g, **{each: object() for each in ("node_id", "name", "source", "variable")}
                )
    assert checked(lambda: 1)() == 1


def test_a_name_that_nothing_is_close_to_is_answered_with_all() -> None:
    """Without a close name the choice is shown."""
    assert closest("zzz", ["one", "two"]) == "there are one, two"


def test_a_large_graph_is_built_in_moments() -> None:
    """The checks cost microseconds a node."""
    started = time.perf_counter()
    large = Graph("large")
    for index in range(2000):
        large.llm(f"n{index}", prompt="x", tools=["a", "b"])
    assert time.perf_counter() - started < 2
