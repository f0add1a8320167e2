"""The short form of a condition."""

from __future__ import annotations

import pytest

from stepgraph.v1.edge_condition_pb2 import EdgeCondition
from stepgraph_server.core.condition_text import EXACT_NAMES, parse_condition


@pytest.mark.parametrize("name", EXACT_NAMES)
def test_an_exact_name_is_the_condition_of_that_name(name: str) -> None:
    assert parse_condition(f" {name}\n").WhichOneof("kind") == name


@pytest.mark.parametrize(
    ("text", "variable", "value"),
    [
        ("status==done", "status", "done"),
        ("status==", "status", ""),
        ("status== done", "status", " done"),
        ("a.b==x==y", "a.b", "x==y"),
        ("text==two\nlines", "text", "two\nlines"),
        ("ready", "ready", "true"),
        ("_condition_result.check", "_condition_result.check", "true"),
    ],
)
def test_a_name_is_compared_with_a_text(text: str, variable: str, value: str) -> None:
    expected = EdgeCondition.StateEquals(variable=variable, value=value)
    assert parse_condition(text).state_equals == expected


@pytest.mark.parametrize(
    "text", ["iterations > 3", 'vars.x == "a"', "has_tool_calls && ready", "!ready", "x ==1", ""]
)
def test_anything_else_is_cel(text: str) -> None:
    assert parse_condition(text).expression.cel == text
