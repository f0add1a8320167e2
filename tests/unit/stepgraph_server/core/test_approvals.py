"""What an answer leaves: the word, its text or choice, and a deletion of what it does not carry."""

from __future__ import annotations

import pytest

from stepgraph.v1 import interrupt_pb2
from stepgraph_server.core import approvals
from tests.support import core_reports as reports

NONE = None


def written(kind: str, *words: str) -> dict[str, str | None]:
    answer = reports.answer(kind, list(words))
    return {
        name: None if value is None else value.text for name, value in approvals.writes("n", answer)
    }


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("proceed", "", ("proceed", None, None)),
        ("proceed_with", "", ("proceed", None, None)),
        ("revise", "why", ("revise", "why", None)),
        ("abort", "why", ("abort", "why", None)),
        ("choose", "x", ("choose", None, "x")),
    ],
)
def test_an_answer_writes_its_parts_and_deletes_the_others(
    kind: str, text: str, expected: tuple[str, str | None, str | None]
) -> None:
    found = written(kind, text)
    names = ("_approval", "_approval_feedback", "_choice")
    assert tuple(found[name] for name in names) == expected
    assert tuple(found[f"{name}.n"] for name in names) == expected


def test_variables_of_an_answer_come_after_the_answer() -> None:
    answer = reports.answer("proceed_with", ['variables={"b": "2", "a": "1"}'])
    assert [name for name, _ in approvals.writes("n", answer)][-2:] == ["a", "b"]


def test_revise_and_abort_say_no() -> None:
    said = {
        kind: approvals.said_no(reports.answer(kind, []))
        for kind in ("proceed", "proceed_with", "choose", "revise", "abort")
    }
    assert [kind for kind, no in said.items() if no] == ["revise", "abort"]
    assert not approvals.said_no(None)


def test_a_no_has_its_text() -> None:
    assert approvals.no_text(reports.answer("revise", ["better"])) == "better"
    assert approvals.no_text(reports.answer("abort", ["never"])) == "never"


def test_a_message_comes_with_proceed_with_only() -> None:
    assert approvals.message(None) is None
    assert approvals.message(interrupt_pb2.InterruptAnswer()) is None
    made = approvals.message(reports.answer("proceed_with", ["message=hello"]))
    assert made is not None
    assert made.content[0].text.text == "hello"


def test_proceed_writes_are_those_of_proceed() -> None:
    answer = reports.answer("proceed", [])
    assert approvals.proceed_writes("n") == approvals.writes("n", answer)
