"""Deadlines of questions: acted on once, at the time first set, and only while somebody still waits."""

from __future__ import annotations

from stepgraph_server.core.deadlines import on_deadline
from stepgraph_server.core.inputs import Answer, TimePassed
from stepgraph_server.core.instants import SECOND
from stepgraph_server.core.run import evolve, next_due
from stepgraph_server.core.turn import Turn
from tests.support.core_pieces import compiled, started
from tests.support.core_reports import answer

GRAPH = compiled("nodes: [{id: a, human_approval: 'ok?', interrupt_options: {deadline: 5s}}]\n")


def test_a_look_too_early_changes_nothing() -> None:
    run = started(GRAPH)
    run.now += 4 * SECOND
    assert not run.happen(TimePassed()).events


def test_an_answer_in_the_same_instant_wins_if_it_is_in_front() -> None:
    run = started(GRAPH)
    run.now += 5 * SECOND
    (name,) = run.state.questions
    run.happen(Answer(interrupt_id=name, answer=answer("proceed", []), answered_by="anna"))
    assert not run.happen(TimePassed()).events
    assert run.state.failure is None


def test_an_answered_question_wakes_nobody() -> None:
    graph = compiled(
        "nodes:\n  - {id: a, human_approval: 'ok?', interrupt_options: {deadline: 5s}}\n  - {id: b, human_approval: 'sure?'}\n"
        "edges: [{from: a, to: b}]\n"
    )
    run = started(graph)
    assert next_due(run.state) == run.now + 5 * SECOND
    (name,) = run.state.questions
    run.happen(Answer(interrupt_id=name, answer=answer("proceed", []), answered_by="anna"))
    assert next_due(run.state) is None


def test_without_a_default_the_node_fails_and_says_how_long_was_waited() -> None:
    run = started(GRAPH)
    run.now += 5 * SECOND
    run.happen(TimePassed())
    assert run.state.failure is not None
    assert run.state.failure.code == "INTERRUPT_DEADLINE"
    assert run.state.failure.details["limit"] == "5 s"


def test_a_question_that_is_closed_or_unknown_is_left_alone() -> None:
    run = started(GRAPH)
    run.now += 5 * SECOND
    turn = Turn(run.state, run.world, run.now, evolve)
    on_deadline(turn, "q-nosuch")
    assert not turn.events
