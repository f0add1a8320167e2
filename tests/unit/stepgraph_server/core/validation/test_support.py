"""What this server does not do yet."""

from __future__ import annotations

from stepgraph_server.core.validation import check
from tests.support.graphs import DEFAULTS, graph, problems

TOOLS = [{"definition": {"name": "t"}, "graph": {"reference": "g"}}]


def test_nobody_is_asked_before_a_child_run_so_who_wants_that_is_refused() -> None:
    """Running it unasked would be worse."""
    wanted = graph(tools=TOOLS, approval_filter={"allow": ["*"]})
    assert problems(wanted) == {("NOT_YET_SUPPORTED", "tools[0].graph")}
    (problem,) = check(wanted, DEFAULTS).findings.problems
    assert problem.hint


def test_all_else_is_supported() -> None:
    assert problems(graph(tools=TOOLS)) == set()
    assert problems(graph(tools=TOOLS, approval_filter={"allow": ["x"]})) == set()
    answered = graph({"a": {"answers": "t"}}, tools=[{"definition": {"name": "t"}}])
    answered.approval_filter.allow.append("*")
    assert problems(answered) == set()
