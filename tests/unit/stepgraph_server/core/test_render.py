"""Graphs as drawings."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepgraph.v1.edge_condition_pb2 import EdgeCondition
from stepgraph_server.core.graph import _build
from stepgraph_server.core.render import (
    MAX_LABEL_CHARACTERS,
    WalkedPath,
    condition_label,
    escape,
    render,
)
from tests.support.graphs import DEFAULTS, condition, graph


def draw(*args: object, path: WalkedPath | None = None, **fields: object) -> str:
    # Not all that can be drawn can be registered yet.
    return render(_build(graph(*args, **fields), DEFAULTS, {}), path)


def test_a_drawing_shows_nodes_edges_and_where_it_starts_and_ends() -> None:
    text = draw(
        {
            "think": {"action": {"llm_infer": {"model": "m"}}},
            "ask": {"action": {"human_approval": {}}},
            "check": {"action": {"condition_check": {"condition": "ready"}}},
            "end": {"join": "NODE_JOIN_ALL"},
            "act": {"action": {"tool_call": {"tool_name": "search"}}, "interrupt": True},
        },
        [
            condition("think > act", "has_tool_calls"),
            ("act > think", {"max_traversals": 5}),
            "think > ask",
            "ask > check",
            "check > end",
        ],
        terminal_nodes=["end"],
    )
    assert text == (
        "flowchart TD\n"
        "    start(( ))\n"
        '    n0{{"act<br/>tool call: search<br/>asks first"}}\n'
        '    n1{{"ask<br/>human approval"}}\n'
        '    n2{"check<br/>condition check: ready"}\n'
        '    n3(["end<br/>assign<br/>joins all"])\n'
        '    n4["think<br/>llm infer: m"]\n'
        "    start --> n4\n"
        '    n4 -->|"has tool calls"| n0\n'
        '    n0 -->|"at most 5 times"| n4\n'
        "    n4 --> n1\n"
        "    n1 --> n2\n"
        "    n2 --> n3\n"
    )


def test_a_handoff_is_dashed() -> None:
    nodes = {"a": {"action": {"step": {"program": "p"}}}, "b": {}}
    assert 'n0 -.->|"handoff"| n1' in draw(nodes, [("a > b", {"handoff": True})])


def test_the_path_of_a_run_is_shown_with_counts() -> None:
    path = WalkedPath(
        node_counts={"a": 2, "b": 1}, edge_counts={"a.b": 1}, current=frozenset({"b"})
    )
    text = draw("a b c", ["a > b", "a > c"], path=path)
    assert '"a<br/>assign<br/>ran 2 times"' in text
    assert '"b<br/>assign<br/>ran once"' in text
    assert 'n0 ==>|"followed once"| n1' in text
    assert "n0 --> n2" in text
    assert "    class n1 current\n    class n0 ran\n    class n2 idle\n" in text


@pytest.mark.parametrize(
    ("kind", "fields", "label"),
    [
        ("always", {}, ""),
        ("otherwise", {}, "otherwise"),
        ("requests_delegation", {}, "requests delegation"),
        ("error_occurred", {}, "error"),
        ("error_occurred", {"codes": list("ABCD")}, "error A, B, C…"),
        ("state_equals", {"variable": "x", "value": "y"}, "x = y"),
        ("custom", {"name": "good"}, "good?"),
        ("paradigm_equals", {"paradigm": "plan"}, "paradigm = plan"),
        ("iteration_exceeds", {"count": 3}, "iterations > 3"),
        ("expression", {"cel": "vars.x > 1"}, "vars.x > 1"),
    ],
)
def test_every_condition_has_a_label(kind: str, fields: dict[str, object], label: str) -> None:
    edge = graph("a b", [condition("a > b", kind, **fields)]).edges[0]
    assert condition_label(edge.condition) == label


def test_an_unset_condition_has_no_label() -> None:
    assert condition_label(EdgeCondition()) == ""


def test_what_a_graph_brings_can_t_leave_its_label() -> None:
    text = escape('a"] --> b<script>`#quot;\n{x}|y')
    assert text == "a#34;#93; --#62; b#60;script#62;#96;#35;quot#59; #123;x#125;#124;y"


def test_a_long_label_is_cut() -> None:
    assert escape("x" * 100) == "x" * (MAX_LABEL_CHARACTERS - 1) + "…"


@given(st.text())
def test_no_text_breaks_out_of_a_label(text: str) -> None:
    # What is left after taking out entities has no mark with a meaning, and no line break.
    rest = re.sub(r"#\d+;", "", escape(text))
    assert not set(rest) & set('"#;<>&`[]{}|\\\n\r')
