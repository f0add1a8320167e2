"""Verdicts on what executors report."""

from __future__ import annotations

from stepgraph.v1 import executor_service_pb2, task_pb2
from stepgraph_server.core.failures import MAX_CAUSES, MAX_MESSAGE_BYTES
from stepgraph_server.core.inputs import Cancel, Outcomes
from stepgraph_server.core.outcomes import ACCEPTED, STALE
from tests.support.core_pieces import compiled, started, succeeded

TASK = "1/a/t0/e0"
TOOL = compiled('nodes: [{id: a, tool_call: {tool_name: t, args_template: "{}"}}]')


def outcome() -> executor_service_pb2.AttemptOutcome:
    return executor_service_pb2.AttemptOutcome(task_id=f"r1/{TASK}", attempt=1)


def test_an_outcome_of_an_unknown_variant_changes_nothing() -> None:
    run = started(TOOL)
    decision = run.happen(Outcomes(instance="i1", outcomes=((TASK, outcome()),)))
    assert not decision.events
    assert [verdict for _, _, verdict in decision.acks] == [STALE]


def test_a_cancelled_attempt_need_not_say_anything() -> None:
    run = started(TOOL)
    run.happen(Cancel(reason="stop"))
    report = outcome()
    report.cancelled.SetInParent()
    run.happen(Outcomes(instance="i1", outcomes=((TASK, report),)))
    assert run.state.final
    fact = next(event.task_cancelled for event in run.events if event.HasField("task_cancelled"))
    assert fact.acknowledged
    assert not fact.HasField("partial")


def test_a_reply_of_another_kind_costs_what_it_says() -> None:
    run = started(TOOL, token_limit=100)
    result = task_pb2.TaskResult()
    result.agent.usage.input_tokens = 5
    run.happen(succeeded(TASK, result))
    assert run.state.tokens.used == 5


def test_a_result_that_refers_to_nothing_is_a_failure_that_names_it() -> None:
    run = started(TOOL)
    report = outcome()
    digest = "sha256:" + "0" * 64
    report.succeeded.tool.output.stored.digest = digest
    decision = run.happen(Outcomes(instance="i1", outcomes=((TASK, report),), missing={0: digest}))
    assert [verdict for _, _, verdict in decision.acks] == [ACCEPTED]
    fact = next(event.task_failed for event in run.events if event.HasField("task_failed"))
    assert fact.failure.code == "RESULT_INVALID"
    assert fact.failure.details["digest"] == digest
    assert not any(event.HasField("task_completed") for event in run.events)


def test_a_failure_is_recorded_within_the_limits_of_failures() -> None:
    run = started(TOOL)
    report = outcome()
    report.failed.failure.code = "BROKEN"
    report.failed.failure.retryable = False
    report.failed.failure.message = "x" * (MAX_MESSAGE_BYTES + 1)
    for number in range(MAX_CAUSES + 5):
        report.failed.failure.causes.add(code="CAUSE", message=str(number))
    run.happen(Outcomes(instance="i1", outcomes=((TASK, report),)))
    fact = next(event.task_failed for event in run.events if event.HasField("task_failed"))
    assert len(fact.failure.message.encode()) <= MAX_MESSAGE_BYTES
    assert len(fact.failure.causes) == MAX_CAUSES
