from __future__ import annotations

import pytest

from stepgraph.v1.interrupt_pb2 import Interrupt, InterruptStatus
from stepgraph_client.identity import caller_name


@pytest.fixture(autouse=True)
def question(server):
    asked = Interrupt(
        interrupt_id="q",
        run_id="r",
        node_id="ask",
        status=InterruptStatus.INTERRUPT_STATUS_OPEN,
    )
    asked.reason.human.prompt = "Deploy?"
    server.questions["q"] = asked
    return asked


def test_open_questions_come_with_the_commands_that_answer_them(run, server) -> None:
    out = run("interrupts").out
    assert "? ask: Deploy?" in out
    assert f"stepgraph --server {server.address} answer q --proceed" in out
    assert run("interrupts", "--json").json[0]["interrupt_id"] == "q"


def test_questions_of_one_run_are_those_of_its_children_too(run, server) -> None:
    run("interrupts", "--run", "r")
    assert server.requests["ListInterrupts"][0].include_descendants


def test_answered_questions_say_who_answered(run) -> None:
    ended = run("interrupts", "--answered")
    assert (ended.out, ended.err) == ("", "no questions\n")
    run("answer", "q", "--proceed", "--as", "ada")
    assert "ada: proceed" in run("interrupts", "--answered").out


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("--proceed",), "proceed"),
        (("--with", "a=b", "--with", "n:=3"), "proceed_with"),
        (("--proceed", "--with", "a=b"), "proceed_with"),
        (("--message", "hurry"), "proceed_with"),
        (("--args", '{"q": 1}'), "proceed_with"),
        (("--revise", "shorter"), "revise"),
        (("--choose", "yes"), "choose"),
        (("--abort", "no"), "abort"),
        (("--abort", ""), "abort"),
        (("--reply", "x"), "reply"),
        (("--reply-json", "[1]"), "reply"),
    ],
    ids=" ".join,
)
def test_every_answer_can_be_given(run, server, words, kind) -> None:
    ended = run("answer", "q", *words)
    assert ended.code == 0
    assert ended.out.startswith("q: ")
    (request,) = server.requests["AnswerInterrupt"]
    assert request.answer.WhichOneof("kind") == kind
    assert request.answered_by == caller_name()


def test_changes_arrive_with_their_types(run, server) -> None:
    run("answer", "q", "--with", "a=3", "--with", "n:=3", "--args", '{"q": 1.0}', "--json")
    changes = server.requests["AnswerInterrupt"][0].answer.proceed_with
    assert (changes.variables["a"].text, changes.variables["n"].json) == ("3", "3")
    assert changes.tool_args == '{"q": 1.0}'


@pytest.mark.parametrize(
    "words", [(), ("--proceed", "--abort", "x"), ("--reply", "a", "--reply-json", "1")], ids=len
)
def test_exactly_one_answer_is_to_be_given(run, server, words) -> None:
    ended = run("answer", "q", *words)
    assert ended.code == 2
    assert "give one answer" in ended.err
    assert not server.requests["AnswerInterrupt"]


def test_whoever_comes_second_learns_who_was_first(run) -> None:
    run("answer", "q", "--proceed", "--as", "ada")
    assert run("answer", "q", "--proceed", "--as", "bob").code == 0
    ended = run("answer", "q", "--abort", "no")
    assert ended.code == 3
    assert "INTERRUPT_ANSWERED: bob was first" in ended.err


def test_the_later_lines_of_an_answered_question_are_indented(run, question) -> None:
    """An answered question is one block as well."""
    question.reason.human.prompt = "Deploy?\nReally?"
    run("answer", "q", "--proceed")
    assert "  ask: Deploy?\n    Really?\n" in run("interrupts", "--answered").out
