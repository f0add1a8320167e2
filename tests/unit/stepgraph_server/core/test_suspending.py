"""Waiting in the middle of an action: what fits, and what comes of it. The scenarios play it in a run."""

from __future__ import annotations

import pytest
from google.protobuf.json_format import ParseDict

from stepgraph.v1 import interrupt_pb2, value_pb2
from stepgraph_server.core.state import Phase, Question
from stepgraph_server.core.suspending import check_answer, check_reply, is_suspension, resume
from tests.support.core_pieces import activation_of, compiled, json, text

GRAPH = compiled("nodes: [{id: a, step: {program: p}}]\n")
NUMBER = '{"type": "integer"}'


def _asked(reason: dict[str, object], schema: str = "") -> interrupt_pb2.Interrupt:
    return ParseDict({"reason": reason, "answer_schema": schema}, interrupt_pb2.Interrupt())


def _answer(tree: dict[str, object]) -> interrupt_pb2.InterruptAnswer:
    return ParseDict(tree, interrupt_pb2.InterruptAnswer())


@pytest.mark.parametrize(
    ("answer", "path"),
    [
        ({}, "answer"),
        ({"proceed": {}}, "answer.proceed"),
        ({"reply": {"value": {"text": "x"}}}, "answer.reply.value"),
        ({"failed": {"failure": {"code": "lower"}}}, "answer.failed.failure.code"),
    ],
)
def test_an_answer_that_does_not_fit_is_told_where(answer: dict[str, object], path: str) -> None:
    problem = check_answer(_asked({"human": {}}, NUMBER), _answer(answer))
    assert problem is not None
    assert problem.path == path


@pytest.mark.parametrize(
    "answer", [{"reply": {"value": {"json": "3"}}}, {"failed": {"failure": {"code": "GONE"}}}]
)
def test_a_value_that_fits_or_a_failure_is_an_answer(answer: dict[str, object]) -> None:
    assert check_answer(_asked({"human": {}}, NUMBER), _answer(answer)) is None


def test_who_waits_for_a_signal_takes_no_answer() -> None:
    asked = _asked({"signal": {"name": "paid"}})
    problem = check_answer(asked, _answer({"reply": {"value": {"text": "x"}}}))
    assert problem is not None
    assert "'paid'" in problem.message


def test_a_value_without_content_here_can_not_be_checked_and_needs_not_be_without_a_schema() -> (
    None
):
    blob = value_pb2.Value(blob=value_pb2.Blob(media_type="image/png", data=b"x"))
    assert check_reply("", blob, "v") is None
    problem = check_reply(NUMBER, blob, "v")
    assert problem is not None
    assert "can't be checked" in problem.message


def test_text_is_checked_as_a_string_and_nothing_as_null() -> None:
    assert check_reply('{"type": "string"}', text("3"), "v") is None
    assert check_reply('{"type": "null"}', value_pb2.Value(), "v") is None
    assert check_reply(NUMBER, json("3"), "v") is None


def test_an_action_of_the_server_s_gets_the_answer_as_its_result() -> None:
    activation = activation_of(GRAPH, "a")
    asked = _asked({"signal": {"name": "paid"}})
    assert is_suspension(activation, asked)
    assert not is_suspension(activation, _asked({"human": {}}))
    activation.phase = Phase.WAITING
    answer = _answer({"reply": {"value": {"text": "x"}}})
    resume(activation, Question(interrupt=asked, suspends=True), answer)
    assert (activation.phase, activation.results) == (Phase.RUNNING, [answer])
