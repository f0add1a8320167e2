"""Tools that the graph itself answers: that somebody does, only one, and that it can."""

from __future__ import annotations

import pytest

from tests.support.graphs import graph, problems

TOOL = {"definition": {"name": "t"}}


def test_a_tool_needs_somebody_who_answers_it() -> None:
    assert problems(graph(tools=[TOOL])) == {("TOOL_UNANSWERED", "tools[0]")}
    assert problems(graph({"a": {"answers": "t"}}, tools=[TOOL])) == set()
    assert problems(graph(tools=[{**TOOL, "graph": {"reference": "g"}}])) == set()


def test_only_one_answers_a_tool() -> None:
    two = graph({"a": {"answers": "t"}, "b": {"answers": "t"}}, ["a > b"], tools=[TOOL])
    assert problems(two) == {("TOOL_ANSWERED_TWICE", "nodes[1].answers")}
    both = graph({"a": {"answers": "t"}}, tools=[{**TOOL, "graph": {"reference": "g"}}])
    assert problems(both) == {("TOOL_ANSWERED_TWICE", "nodes[0].answers")}


def test_a_node_answers_a_tool_that_there_is() -> None:
    wrong = graph({"a": {"answers": "tt"}, "b": {"answers": "t"}}, ["a > b"], tools=[TOOL])
    assert problems(wrong) == {("UNKNOWN_TOOL", "nodes[0].answers")}


@pytest.mark.parametrize(
    ("action", "fits"),
    [
        ({"run_requested_tools": {}}, False),
        ({"llm_infer": {"model": "m", "include_tool_definitions": True}}, False),
        ({"llm_infer": {"model": "m"}}, True),
        ({"tool_call": {"tool_name": "x"}}, False),
        ({"tool_call": {"tool_name": "x", "args_template": "{}"}}, True),
        ({"delegate": {"agent_kind": "x"}}, False),
        ({"delegate": {"agent_kind": "x", "task_template": "y"}}, True),
        ({"switch_paradigm": {}}, False),
        ({"switch_paradigm": {"paradigm": "p"}}, True),
        ({"human_approval": {"description": "{{input.question}}"}}, True),
        ({"step": {"program": "p"}}, True),
    ],
)
def test_what_a_node_does_must_fit_a_call(action: dict[str, object], *, fits: bool) -> None:
    """What carries out calls of its own has none to spare for this one."""
    paradigms = {"p": {"system_prompt": "x"}}
    definition = graph({"a": {"answers": "t", "action": action}}, tools=[TOOL], paradigms=paradigms)
    expected = set() if fits else {("ACTION_NOT_ALLOWED", "nodes[0].answers")}
    assert problems(definition) == expected
