"""Questions to people, and default answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.graphs import graph, problems, supported, warnings

if TYPE_CHECKING:
    from stepgraph.v1.graph_pb2 import StateGraph

OPTIONS = "nodes[0].interrupt_options"
DEFAULT = f"{OPTIONS}.default_answer"


def ask(*, action: dict[str, object] | None = None, **options: object) -> StateGraph:
    node: dict[str, object] = {"interrupt": True, "interrupt_options": options}
    return graph({"a": {**node, **({"action": action} if action else {})}})


def answer(kind: str, *, question: dict[str, object] | None = None, **fields: object) -> StateGraph:
    return ask(deadline="60s", default_answer={kind: fields}, **(question or {}))


def test_a_question_is_checked_wherever_it_stands() -> None:
    wrong = {
        "description": "{{x",
        "options": [{"id": "yes"}, {"id": "yes"}, {"id": "a b"}, {}],
        "answer_schema": "{",
    }
    expected = {
        ("TEMPLATE_INVALID", "description"),
        ("DUPLICATE_ID", "options[1].id"),
        ("NAME_INVALID", "options[2].id"),
        ("REQUIRED", "options[3].id"),
        ("SCHEMA_INVALID", "answer_schema"),
    }
    assert problems(ask(**wrong)) == {(code, f"{OPTIONS}.{path}") for code, path in expected}
    assert problems(graph({"a": {"action": {"human_approval": wrong}}})) == {
        (code, f"nodes[0].action.human_approval.{path}") for code, path in expected
    }


def test_a_question_has_at_most_32_options_and_16_kib() -> None:
    wrong = {"description": "x" * 17_000, "options": [{"id": f"o{n}"} for n in range(33)]}
    expected = {("TOO_LARGE", "description"), ("TOO_MANY", "options")}
    assert problems(ask(**wrong)) == {(code, f"{OPTIONS}.{path}") for code, path in expected}
    assert problems(graph({"a": {"action": {"human_approval": wrong}}})) == {
        (code, f"nodes[0].action.human_approval.{path}") for code, path in expected
    }


def test_a_node_that_asks_nobody_needs_no_question() -> None:
    definition = graph({"a": {"interrupt_options": {"description": "Well?"}}})
    assert warnings(definition) == {("FIELD_IGNORED", OPTIONS)}
    asks = graph({"a": {"action": {"human_approval": {}}, "interrupt_options": {}}})
    assert warnings(asks) == set()


CALLERS = (
    {"tool_call": {"tool_name": "t"}},
    {"run_requested_tools": {}},
    {"step": {"program": "p"}},
)


@pytest.mark.parametrize("action", CALLERS)
def test_who_calls_tools_says_how_long_their_approvals_wait(action: dict[str, object]) -> None:
    """What else a question may have is of no use to them, since it shows the call."""

    def node(**options: object) -> StateGraph:
        return graph({"a": {"action": action, "interrupt_options": options}})

    fitting: dict[str, object] = {"proceed_with": {"tool_args": "{}"}}
    assert warnings(node(deadline="60s", default_answer=fitting)) == set()
    for kind in ("proceed", "revise", "abort"):
        assert problems(node(deadline="60s", default_answer={kind: {}})) == set()
    ignored = node(description="Well?", options=[{"id": "x"}], answer_schema="{}")
    assert warnings(ignored) == {
        ("FIELD_IGNORED", f"{OPTIONS}.{name}")
        for name in ("description", "options", "answer_schema")
    }
    chosen = node(deadline="60s", default_answer={"choose": {"option_id": "x"}})
    assert problems(chosen) == {("UNKNOWN_OPTION", f"{DEFAULT}.choose.option_id")}
    said = node(deadline="60s", default_answer={"proceed_with": {"message": "x"}})
    assert problems(said) == {("DEFAULT_ANSWER_INVALID", f"{DEFAULT}.proceed_with")}


def test_a_default_answer_without_a_deadline_is_never_given() -> None:
    assert warnings(ask(default_answer={"proceed": {}})) == {("FIELD_IGNORED", DEFAULT)}


@pytest.mark.parametrize(
    ("kind", "fields", "question"),
    [
        ("proceed", {}, {}),
        ("revise", {"feedback": "No."}, {}),
        ("abort", {"reason": "No."}, {}),
        ("choose", {"option_id": "yes"}, {"options": [{"id": "yes"}]}),
        (
            "proceed_with",
            {"variables": {"n": {"json": "3"}}},
            {"answer_schema": '{"required":["n"]}'},
        ),
        ("proceed_with", {"variables": {"n": {"text": "3"}}, "message": "Go."}, {}),
        ("proceed_with", {"variables": {"n": {"blob": {"data": "AA=="}}}}, {}),
    ],
)
def test_a_default_answer_that_fits_is_taken(
    kind: str, fields: dict[str, object], question: dict[str, object]
) -> None:
    assert supported(problems(answer(kind, question=question, **fields))) == set()


NEEDS_NUMBER = {"answer_schema": '{"properties":{"n":{"type":"integer"}},"required":["n"]}'}


@pytest.mark.parametrize(
    ("kind", "fields", "question", "code", "path"),
    [
        ("proceed", {}, NEEDS_NUMBER, "DEFAULT_ANSWER_INVALID", "proceed"),
        ("choose", {"option_id": "no"}, {}, "UNKNOWN_OPTION", "choose.option_id"),
        ("reply", {}, {}, "DEFAULT_ANSWER_INVALID", "reply"),
        ("failed", {}, {}, "DEFAULT_ANSWER_INVALID", "failed"),
        ("revise", {"feedback": "x" * 70_000}, {}, "TOO_LARGE", "revise.feedback"),
        ("abort", {"reason": "x" * 70_000}, {}, "TOO_LARGE", "abort.reason"),
        ("proceed_with", {"message": "x" * 270_000}, {}, "TOO_LARGE", "proceed_with.message"),
        ("proceed_with", {}, NEEDS_NUMBER, "DEFAULT_ANSWER_INVALID", "proceed_with.variables"),
        (
            "proceed_with",
            {"variables": {"n": {"text": "3"}}},
            NEEDS_NUMBER,
            "DEFAULT_ANSWER_INVALID",
            "proceed_with.variables",
        ),
        (
            "proceed_with",
            {"variables": {"n": {"json": "{"}}},
            NEEDS_NUMBER,
            "JSON_INVALID",
            'proceed_with.variables["n"].json',
        ),
        (
            "proceed_with",
            {"variables": {"_approval": {"text": "x"}}},
            {},
            "NAME_RESERVED",
            'proceed_with.variables["_approval"]',
        ),
        (
            "proceed_with",
            {"variables": {"n": {"text": "x" * 270_000}}},
            {},
            "TOO_LARGE",
            'proceed_with.variables["n"].text',
        ),
        (
            "proceed_with",
            {"variables": {"n": {"blob": {"data": "A" * 360_000}}}},
            {},
            "TOO_LARGE",
            'proceed_with.variables["n"].blob.data',
        ),
        (
            "proceed_with",
            {"variables": {"n": {}}},
            {},
            "UNKNOWN_VARIANT",
            'proceed_with.variables["n"]',
        ),
        (
            "proceed_with",
            {"tool_args": "{}"},
            {},
            "DEFAULT_ANSWER_INVALID",
            "proceed_with.tool_args",
        ),
    ],
)
def test_a_default_answer_that_does_not_fit_is_told(
    kind: str, fields: dict[str, object], question: dict[str, object], code: str, path: str
) -> None:
    found = supported(problems(answer(kind, question=question, **fields)))
    assert found == {(code, f"{DEFAULT}.{path}")}


def test_an_unset_default_answer_is_told_once() -> None:
    definition = ask(deadline="1s", default_answer={})
    assert supported(problems(definition)) == {("UNKNOWN_VARIANT", DEFAULT)}


def test_arguments_may_be_brought_where_the_question_is_about_a_call() -> None:
    call: dict[str, object] = {"tool_call": {"tool_name": "search"}}
    for args, expected in (("{}", set()), ("[]", {"JSON_INVALID"}), ("", {"JSON_INVALID"})):
        definition = ask(
            action=call, deadline="1s", default_answer={"proceed_with": {"tool_args": args}}
        )
        assert {code for code, _ in supported(problems(definition))} == expected


def test_a_human_approval_has_its_own_options_and_schema() -> None:
    approval: dict[str, object] = {
        "human_approval": {"options": [{"id": "yes"}], "answer_schema": '{"required":["n"]}'}
    }
    chosen = ask(action=approval, deadline="1s", default_answer={"choose": {"option_id": "yes"}})
    assert supported(problems(chosen)) == set()
    empty = ask(action=approval, deadline="1s", default_answer={"proceed_with": {}})
    assert supported(problems(empty)) == {
        ("DEFAULT_ANSWER_INVALID", f"{DEFAULT}.proceed_with.variables")
    }


def test_a_broken_schema_is_told_once_and_checks_nothing() -> None:
    approval: dict[str, object] = {"human_approval": {"answer_schema": "{"}}
    definition = ask(action=approval, deadline="1s", default_answer={"proceed_with": {}})
    assert supported(problems(definition)) == {
        ("SCHEMA_INVALID", "nodes[0].action.human_approval.answer_schema")
    }
