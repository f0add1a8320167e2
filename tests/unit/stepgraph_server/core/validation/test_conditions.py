"""Conditions and expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stepgraph_server.core.expressions import MAX_SOURCE_CHARACTERS
from stepgraph_server.core.validation import check
from tests.support.graphs import (
    DEFAULTS,
    condition,
    graph,
    problems,
    warnings,
    with_action,
)

if TYPE_CHECKING:
    from stepgraph.v1.graph_pb2 import StateGraph


def edge(kind: str, **fields: object) -> StateGraph:
    return graph("a b", [condition("a > b", kind, **fields)])


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("has_tool_calls", {}),
        ("error_occurred", {"codes": ["TOOL_ERROR"]}),
        ("state_equals", {"variable": "_approval", "value": ""}),
        ("custom", {"name": "good_enough", "description": "Is it?"}),
        ("iteration_exceeds", {"count": 3}),
        ("expression", {"cel": "edge.traversals < 3"}),
        ("expression", {"cel": "vars.flag"}),
    ],
)
def test_a_right_condition_is_taken(kind: str, fields: dict[str, object]) -> None:
    assert problems(edge(kind, **fields)) == set()


@pytest.mark.parametrize(
    ("kind", "fields", "code", "path"),
    [
        ("error_occurred", {"codes": ["x"]}, "NAME_INVALID", "error_occurred.codes[0]"),
        ("state_equals", {"value": "x"}, "REQUIRED", "state_equals.variable"),
        ("custom", {"name": "a b"}, "NAME_INVALID", "custom.name"),
        ("custom", {"name": "a", "description": "x" * 9_000}, "TOO_LARGE", "custom.description"),
        ("paradigm_equals", {"paradigm": "plan"}, "UNKNOWN_PARADIGM", "paradigm_equals.paradigm"),
        ("expression", {"cel": "vars.x >"}, "EXPRESSION_INVALID", "expression.cel"),
        ("expression", {"cel": ""}, "EXPRESSION_INVALID", "expression.cel"),
        ("expression", {"cel": "variables.x"}, "EXPRESSION_INVALID", "expression.cel"),
        ("expression", {"cel": "1 + 2 // three"}, "EXPRESSION_INVALID", "expression.cel"),
        ("expression", {"cel": '"a"'}, "EXPRESSION_INVALID", "expression.cel"),
    ],
)
def test_a_wrong_condition_is_told(
    kind: str, fields: dict[str, object], code: str, path: str
) -> None:
    assert problems(edge(kind, **fields)) == {(code, f"edges[0].condition.{path}")}


@pytest.mark.parametrize(
    "cel",
    [
        '"a == b"',
        "'a == b'",
        "[1 == 2]",
        "string(1 == 2)",
        "1 == 2 ? 3 : 4",
        "1 // == 2",
        "size(vars)",
        "iterations",
    ],
)
def test_what_only_looks_like_a_comparison_is_told(cel: str) -> None:
    path = "edges[0].condition.expression.cel"
    assert problems(edge("expression", cel=cel)) == {("EXPRESSION_INVALID", path)}


@pytest.mark.parametrize(
    "cel",
    [
        'has(vars.x) && vars.x == "it\'s"',
        "size(vars) > 3",
        "1 == 2 ? true : vars.x",
        "!(vars.a || vars.b)",
        "'a' in ['a']",
        "vars.xs.exists(x, x > 3)",
    ],
)
def test_what_gives_true_or_false_is_taken(cel: str) -> None:
    assert problems(edge("expression", cel=cel)) == set()


def test_an_error_in_an_expression_has_its_place_and_what_exists() -> None:
    (problem,) = check(edge("expression", cel="true && itrations > 3"), DEFAULTS).findings.problems
    assert "character 9" in problem.message
    assert "iterations" in problem.hint


def test_an_error_without_a_close_name_lists_what_exists() -> None:
    (problem,) = check(edge("expression", cel="decision.zzzzzz == 1"), DEFAULTS).findings.problems
    assert problem.hint.startswith("There is agent_kind, calls, ")


def test_an_expression_too_long_to_be_negated_is_left_to_the_run() -> None:
    text = '"' + "x" * (MAX_SOURCE_CHARACTERS - 2) + '"'
    assert problems(edge("expression", cel=text)) == set()


def test_what_was_compiled_is_handed_over() -> None:
    found = check(edge("expression", cel="iterations > 3"), DEFAULTS)
    assert found.expressions["iterations > 3"].source == "iterations > 3"


def test_a_count_beyond_the_cap_never_holds() -> None:
    expected = {("CONDITION_NEVER_HOLDS", "edges[0].condition.iteration_exceeds.count")}
    assert warnings(edge("iteration_exceeds", count=50)) == expected
    assert warnings(edge("iteration_exceeds", count=49)) == set()
    capped = [condition("a > b", "iteration_exceeds", count=3)]
    assert warnings(graph("a b", capped, max_iterations=3)) == expected
    assert warnings(graph("a b", capped, max_iterations=4)) == set()


def test_an_unknown_paradigm_is_told_with_the_closest() -> None:
    definition = graph(
        "a b", [condition("a > b", "paradigm_equals", paradigm="pln")], paradigms={"plan": {}}
    )
    (problem,) = check(definition, DEFAULTS).findings.problems
    assert problem.hint == "Did you mean plan?"


@pytest.mark.parametrize(
    "text", ["has_tool_calls", "status==done", "ready", "iterations > 3", "(vars.x == 'a')"]
)
def test_a_right_text_is_taken(text: str) -> None:
    definition = with_action("condition_check", condition=text)
    assert problems(definition) == set()
    assert warnings(definition) == set()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("  ", "REQUIRED"),
        ("iterations >", "EXPRESSION_INVALID"),
        ("iterations + 1", "EXPRESSION_INVALID"),
        ("edge.traversals > 1", "EXPRESSION_INVALID"),
        ("status == done", "EXPRESSION_INVALID"),
    ],
)
def test_a_wrong_text_is_told(text: str, code: str) -> None:
    path = "nodes[0].action.condition_check.condition"
    assert problems(with_action("condition_check", condition=text)) == {(code, path)}


@pytest.mark.parametrize(
    "text",
    ["vars.x==1", "iterations==3", 'x=="a"', "x==1 && y==2", "true", "decision.kind", "x==f(1)"],
)
def test_a_text_that_looks_like_cel_is_warned_of(text: str) -> None:
    assert warnings(with_action("condition_check", condition=text)) == {
        ("AMBIGUOUS_CONDITION", "nodes[0].action.condition_check.condition")
    }


def test_only_an_edge_counts_traversals() -> None:
    definition = with_action("assign", set={"x": "edge.traversals"})
    assert problems(definition) == {("EXPRESSION_INVALID", 'nodes[0].action.assign.set["x"]')}
