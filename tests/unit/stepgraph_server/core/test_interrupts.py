"""Questions as clients see them, and values of answers that can't be taken."""

from __future__ import annotations

from stepgraph.v1 import interrupt_pb2, value_pb2
from stepgraph_server.core import interrupts
from stepgraph_server.core.inputs import Answer, Cancel
from tests.support import core_reports as reports
from tests.support.core_pieces import compiled, started

GRAPH = compiled("nodes: [{id: a, human_approval: Go on?}]")


def test_an_open_question_is_shown_as_it_was_asked() -> None:
    (question,) = started(GRAPH).state.questions.values()
    shown = interrupts.current(question)
    assert shown == question.interrupt
    assert shown.status == interrupt_pb2.INTERRUPT_STATUS_OPEN


def test_an_answered_question_shows_who_answered_what_and_when() -> None:
    run = started(GRAPH)
    (interrupt_id,) = run.state.questions
    answer = reports.answer("proceed", [])
    run.happen(Answer(interrupt_id=interrupt_id, answer=answer, answered_by="anna"))
    shown = interrupts.current(run.state.questions[interrupt_id])
    assert (shown.status, shown.answered_by) == (interrupt_pb2.INTERRUPT_STATUS_ANSWERED, "anna")
    assert shown.answer == answer
    assert shown.HasField("close_time")


def test_a_closed_question_has_no_answer() -> None:
    run = started(GRAPH)
    run.happen(Cancel(reason="enough"))
    (question,) = run.state.questions.values()
    shown = interrupts.current(question)
    assert shown.status == interrupt_pb2.INTERRUPT_STATUS_CLOSED
    assert not shown.HasField("answer")


def test_variables_of_an_answer_must_be_values() -> None:
    (question,) = started(GRAPH).state.questions.values()
    answer = reports.answer("proceed_with", ['variables={"ok": 1}'])
    answer.proceed_with.variables["broken"].CopyFrom(value_pb2.Value(json="[1"))
    problem = interrupts.check_answer(question.interrupt, answer)
    assert problem is not None
    assert "broken" in problem.path


def test_an_answer_that_can_not_be_read_does_not_fit_a_schema() -> None:
    """It is refused; were it to raise anything else, the run could not go on."""
    graph = compiled("nodes: [{id: a, human_approval: {description: Go on?, answer_schema: '{}'}}]")
    (question,) = started(graph).state.questions.values()
    answer = interrupt_pb2.InterruptAnswer()
    stored = answer.proceed_with.variables["doc"].stored
    stored.digest, stored.form = "sha256:" + "0" * 64, value_pb2.VALUE_FORM_JSON
    problem = interrupts.check_answer(question.interrupt, answer)
    assert problem is not None
    assert "doc is a stored value" in problem.message
