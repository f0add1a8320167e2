"""Forks; the whole story is in tests/scenarios."""

from __future__ import annotations

import pytest

from stepgraph.v1 import event_pb2
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.inputs import Answer, Fork
from tests.support.core_pieces import compiled, started
from tests.support.core_reports import answer
from tests.support.core_run import RUN_ID, PlayedRun

ASKS = compiled(
    "nodes: [{id: a, human_approval: Go on?}, {id: b, tool_call: x}]\nedges: [{from: a, to: b}]"
)


def fork_of(run: PlayedRun, **changes: object) -> Fork:
    forked = event_pb2.RunForked(run_id=RUN_ID, max_iterations=50, **changes)
    forked.origin.run_id, forked.origin.sequence = "r0", len(run.events)
    return Fork(forked=forked)


def test_tokens_and_limits_count_from_the_fork() -> None:
    """What the other run used is its own."""
    run = started(ASKS, token_limit=100)
    run.state.tokens.input = 90
    forked = run.fork(len(run.events), fork_of(run, token_limit=50))
    assert forked.state.tokens.used == 0
    assert forked.state.budget_remaining == 50
    assert forked.state.forked_at_iteration == 1


def test_an_answer_of_the_other_run_does_not_count() -> None:
    """Its question is not known here."""
    run = started(ASKS)
    [old] = run.state.questions
    forked = run.fork(len(run.events), fork_of(run))
    with pytest.raises(Refused, match="has no interrupt") as refused:
        forked.happen(Answer(interrupt_id=old, answer=answer("proceed", []), answered_by="anna"))
    assert refused.value.reason == "INTERRUPT_NOT_FOUND"
    [new] = forked.state.questions
    assert forked.state.interrupt_points == [new]
    assert new != old


def test_two_answers_to_one_question_are_refused() -> None:
    """Which of them was meant can't be known."""
    run = started(ASKS)
    twice = (("1/a", answer("proceed", [])), ("1/a", answer("abort", ["no"])))
    made = fork_of(run)
    with pytest.raises(Refused, match="answered twice"):
        run.fork(len(run.events), Fork(forked=made.forked, answers=twice))
