"""Forks; the whole story is in tests/scenarios."""

from __future__ import annotations

import pytest

from stepgraph.v1 import event_pb2, executor_service_pb2, task_pb2, transition_pb2
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.inputs import Answer, Fork, Outcomes
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


@pytest.mark.parametrize(("keep", "token"), [(True, "t-1"), (False, "")])
def test_a_token_stays_with_the_run_that_lives(keep: bool, token: str) -> None:
    """Two questions must not wait for one token: the fork's is answered by its id, unless the other run is over."""
    run = started(compiled("nodes: [{id: a, step: waits}]"))
    [task] = run.state.tasks.values()
    reply = transition_pb2.StepReply()
    reply.transition.suspend.reason.external.token = "t-1"
    outcome = executor_service_pb2.AttemptOutcome(
        task_id=f"{RUN_ID}/{task.id}", attempt=1, succeeded=task_pb2.TaskResult(step=reply)
    )
    run.happen(Outcomes(instance=task.instance, outcomes=((task.id, outcome),)))
    made = fork_of(run)
    forked = run.fork(len(run.events), Fork(forked=made.forked, keep_tokens=keep))
    [question] = [each for each in forked.state.questions.values() if each.open]
    assert question.interrupt.reason.external.token == token
    assert forked.state.external_tokens == ({token} if token else set())
