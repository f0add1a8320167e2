from __future__ import annotations

import json

import pytest

from stepgraph.v1.interrupt_pb2 import Interrupt, InterruptStatus
from stepgraph.v1.run_service_pb2 import WatchBatch, WatchRunsResponse
from tests.support.fake_server import run_event


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


def test_the_later_lines_of_an_answered_question_are_indented(run, question) -> None:
    """An answered question is one block as well."""
    question.reason.human.prompt = "Deploy?\nReally?"
    run("answer", "q", "--proceed")
    assert "  ask: Deploy?\n    Really?\n" in run("interrupts", "--answered").out


def test_one_question_is_shown_open_or_not(run, question) -> None:
    question.answer_schema = '{"type": "object"}'
    out = run("interrupts", "get", "q").out
    assert "answer q --with NAME=VALUE" in out
    assert 'schema of the answer  {"type": "object"}' in out
    question.status = InterruptStatus.INTERRUPT_STATUS_CLOSED
    assert "closed without an answer" in run("interrupts", "get", "q").out
    assert run("interrupts", "get", "q", "-o", "ids").out == "q\n"
    assert run("interrupts", "get", "nope").code == 3
    assert "q" not in run("interrupts", "list").out
    assert "q" in run("interrupts", "list", "--status", "closed").out


def test_a_list_that_is_cut_says_so(run, server, question) -> None:
    other = Interrupt()
    other.CopyFrom(question)
    other.interrupt_id = "q2"
    server.questions["q2"] = other
    ended = run("interrupts", "--limit", "1")
    assert "there are more than 1" in ended.err
    assert "q2" not in ended.out


def news(*events) -> WatchRunsResponse:
    return WatchRunsResponse(batches=[WatchBatch(run_id="r", events=events)])


def test_the_inbox_shows_what_is_open_and_then_what_comes(run, server, question) -> None:
    """A question that is opened while the list is read is in both, and shown once."""
    opened, other, answered, closed = (run_event(each) for each in range(1, 5))
    opened.interrupt_opened.question.CopyFrom(question)
    other.interrupt_opened.question.CopyFrom(question)
    other.interrupt_opened.question.interrupt_id = "q2"
    answered.interrupt_answered.interrupt_id = "q"
    answered.interrupt_answered.answered_by = "ada"
    answered.interrupt_answered.answer.proceed.SetInParent()
    closed.interrupt_closed.interrupt_id = "q2"
    server.news = [WatchRunsResponse(), news(opened, other), news(answered, closed)]
    out = run("interrupts", "watch").out
    assert out.count("q  of r") == out.count("q2  of r") == 1
    assert "q  answered by ada: proceed\n" in out
    assert "q2  closed: the run went on\n" in out
    kinds = [
        json.loads(line).keys() for line in run("interrupts", "watch", "--json").out.splitlines()
    ]
    assert [("interrupt_answered" in each, "reason" in each) for each in kinds] == [
        (False, True),
        (False, True),
        (True, False),
        (False, False),
    ]


def test_the_inbox_is_filtered_from_now_on(run, server, question) -> None:
    server.news = [WatchRunsResponse()]
    assert run("interrupts", "watch", "--label", "a=b").out == ""
    assert [dict(each.filter.labels) for each in server.requests["WatchRuns"]] == [{"a": "b"}] * 2
