"""Forks; the whole story is in tests/scenarios."""

from __future__ import annotations

import pytest

from stepgraph.v1 import event_pb2, executor_service_pb2, task_pb2, transition_pb2
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.inputs import Answer, Fork, Outcomes
from stepgraph_server.core.instants import SECOND, Span, after, from_timestamp
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


def tool_result(text_: str) -> task_pb2.TaskResult:
    made = task_pb2.TaskResult()
    made.tool.output.text = text_
    return made


def test_a_result_is_given_once() -> None:
    """Which of two was meant can't be known."""
    run = started(compiled('nodes: [{id: a, tool_call: {tool_name: t, args_template: "{}"}}]'))
    [task_id] = run.state.tasks
    made = fork_of(run)
    twice = ((task_id, tool_result("one")), (task_id, tool_result("two")))
    with pytest.raises(Refused, match="given twice"):
        run.fork(len(run.events), Fork(forked=made.forked, results=twice))


def test_a_programs_reply_is_checked_like_any_other() -> None:
    """The field that is wrong is named, and the fork was never there."""
    run = started(compiled("nodes: [{id: a, step: waits}]"))
    [task_id] = run.state.tasks
    empty = task_pb2.TaskResult(step=transition_pb2.StepReply())
    made = fork_of(run)
    with pytest.raises(Refused, match="transition") as refused:
        run.fork(len(run.events), Fork(forked=made.forked, results=((task_id, empty),)))
    assert refused.value.metadata["field"] == f"results[{task_id}]"


def test_a_patch_may_add_messages_and_another_decision() -> None:
    """The decision is that of every live node; messages are behind those of the prefix."""
    run = started(ASKS)
    made = fork_of(run)
    patch = made.forked.patch
    patch.messages.add(role="ROLE_USER").content.add().text.text = "be quick"
    patch.decision.direct_answer.text = "done"
    forked = run.fork(len(run.events), made)
    assert forked.state.conversation.last_text() == "be quick"
    [activation] = forked.state.activations.values()
    assert activation.carried.decision is not None
    assert activation.carried.decision.direct_answer.text == "done"


def test_a_deadline_is_as_far_away_as_it_was() -> None:
    """It counts from the fork."""
    graph = compiled("nodes: [{id: a, human_approval: Go on?, interrupt_options: {deadline: 60s}}]")
    run = started(graph)
    run.now = after(run.now, Span(30 * SECOND))
    forked = run.fork(len(run.events), fork_of(run))
    [question] = forked.state.questions.values()
    interrupt = question.interrupt
    assert from_timestamp(interrupt.deadline_time) == after(run.now, Span(60 * SECOND))


def test_spawned_work_goes_on_by_the_other_graph() -> None:
    """A body of the new version has its tries and limits."""
    text_ = (
        "nodes:\n"
        "  - {id: a, map: {items: '[1, 2]', body: {node_id: b}}}\n"
        "  - {id: b, delegate: {agent_kind: k, task_template: '{{item}}'}, retry: {max_tries: %s}}"
    )
    run = started(compiled(text_ % 1))
    other = compiled(text_ % 5)
    made = fork_of(run)
    made.forked.graph.digest = other.digest
    forked = run.fork(len(run.events), Fork(forked=made.forked, graph=other))
    assert {task.retry.max_tries for task in forked.state.tasks.values()} == {5}
    assert {child.node is other.nodes["b"] for child in forked.state.spawned.values()} == {True}
