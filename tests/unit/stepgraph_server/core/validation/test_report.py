"""Where the checks write down what they find."""

from __future__ import annotations

from stepgraph_server.core.validation.codes import ProblemCode, WarningCode
from stepgraph_server.core.validation.report import (
    MAX_HINTS,
    MAX_LISTED,
    Findings,
    Report,
    at_key,
    shown,
)


def test_problems_and_warnings_are_kept_apart_and_in_order() -> None:
    report = Report()
    report.problem(ProblemCode.REQUIRED, "a", "x", "y")
    report.warning(WarningCode.FIELD_IGNORED, "b", "z")
    report.problem(ProblemCode.TOO_MANY, "c", "w")
    found = report.findings()
    assert [(problem.code, problem.path) for problem in found.problems] == [
        ("REQUIRED", "a"),
        ("TOO_MANY", "c"),
    ]
    assert type(found.problems[0].code) is str
    assert (found.problems[0].message, found.problems[0].hint) == ("x", "y")
    assert [warning.code for warning in found.warnings] == ["FIELD_IGNORED"]


def test_an_empty_report_finds_nothing() -> None:
    assert Report().findings() == Findings(problems=(), warnings=())


def test_what_is_not_listed_is_counted() -> None:
    report = Report()
    for _ in range(MAX_LISTED + 3):
        report.problem(ProblemCode.REQUIRED, "a", "x")
        report.warning(WarningCode.FIELD_IGNORED, "a", "x")
    found = report.findings()
    assert len(found.problems) == MAX_LISTED + 1
    assert found.problems[-1].code == "TOO_MANY_PROBLEMS"
    assert found.problems[-1].message.startswith("3 more")
    assert len(found.warnings) == MAX_LISTED


def test_only_so_many_problems_get_a_hint() -> None:
    report = Report()
    hints = [report.closest("tink", ["think"]) for _ in range(MAX_HINTS + 1)]
    assert hints[0] == "Did you mean think?"
    assert hints[-1] == ""


def test_a_long_message_is_cut() -> None:
    report = Report()
    report.problem(ProblemCode.REQUIRED, "a", "x" * 10_000)
    assert len(report.findings().problems[0].message) < 1_000


def test_what_a_graph_brings_is_shown_quoted_and_cut() -> None:
    assert shown('a"b\n') == '"a\\"b\\n"'
    assert shown("x" * 200) == '"' + "x" * 80 + '…"'
    assert at_key("paradigms", "plan") == 'paradigms["plan"]'
