"""Spans of attempts: who had them, how long they had waited, how they ended."""

from __future__ import annotations

import pytest

from stepgraph.v1.event_pb2 import (
    TaskAssigned,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskLost,
    TaskScheduled,
)
from stepgraph_server.telemetry.attempt_spans import AttemptSpans
from tests.support.otlp_events import TASK, trace

S = 1_000_000_000


@pytest.fixture
def attempts():
    return AttemptSpans(trace(), {"stepgraph.run.id": "r1"})


def schedule(attempts, at_ns, **assignment):
    fact = TaskScheduled(task_id=TASK, requirement={"tool": {"name": "search"}})
    if assignment:
        fact.assignment.attempt = 1
        fact.assignment.executor_id = assignment["executor_id"]
    attempts.scheduled(fact, at_ns)


def assign(attempts, attempt, at_ns):
    given = {"attempt": attempt, "executor_id": "e2"}
    attempts.assigned(TaskAssigned(task_id=TASK, assignment=given), at_ns)


def test_an_attempt_stands_under_its_node_from_when_somebody_has_it(attempts):
    schedule(attempts, 1 * S)
    assign(attempts, 1, 4 * S)
    span = attempts.completed(TaskCompleted(task_id=TASK, attempt=1), 6 * S)
    it = trace()
    assert (span.name, span.start_ns, span.end_ns) == ("execute_tool search", 4 * S, 6 * S)
    assert (span.span_id, span.parent_id) == (it.attempt_span(TASK, 1), it.node_span("1/a"))
    assert span.is_remote_call
    assert span.attributes["stepgraph.queue_ms"] == 3_000
    assert span.attributes["stepgraph.task.id"] == f"r1/{TASK}"
    assert span.attributes["stepgraph.node.id"] == "a"
    assert span.attributes["stepgraph.executor.id"] == "e2"
    assert span.attributes["stepgraph.outcome"] == "completed"


def test_each_try_has_a_span_and_waits_from_when_it_may_begin(attempts):
    schedule(attempts, 1 * S, executor_id="e1")
    failure = {"code": "RUN_LIMIT", "message": "a secret"}
    failed = TaskFailed(task_id=TASK, attempt=1, failure=failure, retry_time={"seconds": 8})
    first = attempts.failed(failed, 2 * S)
    assign(attempts, 2, 9 * S)
    failed.ClearField("retry_time")
    second = attempts.failed(failed, 10 * S)
    assert (first.error, first.attributes["error.type"]) == ("RUN_LIMIT", "RUN_LIMIT")
    assert first.span_id != second.span_id
    assert second.attributes["stepgraph.queue_ms"] == 1_000
    assert second.attributes["stepgraph.attempt"] == 2
    assert "a secret" not in str(first)
    assert attempts.abandon(11 * S) == []


def test_a_lost_attempt_says_how_and_its_task_waits_again(attempts):
    schedule(attempts, 1 * S, executor_id="e1")
    span = attempts.lost(TaskLost(task_id=TASK, attempt=1, reason=1), 3 * S)
    assert (span.error, span.attributes["stepgraph.outcome"]) == ("DISCONNECTED", "lost")
    assert attempts.abandon(4 * S) == []  # nobody had it


def test_a_cancelled_attempt_is_no_error_and_what_it_cost_counts(attempts):
    schedule(attempts, 1 * S, executor_id="e1")
    cancelled = TaskCancelled(
        task_id=TASK, attempt=1, usage={"input_tokens": 3, "output_tokens": 4}
    )
    span = attempts.cancelled(cancelled, 2 * S)
    assert (span.error, span.attributes["stepgraph.outcome"]) == ("", "cancelled")
    assert span.attributes["gen_ai.usage.input_tokens"] == 3
    assert (attempts.input_tokens, attempts.output_tokens) == (3, 4)


def test_a_task_that_nobody_had_has_no_span(attempts):
    schedule(attempts, 1 * S)
    failed = TaskFailed(task_id=TASK, failure={"code": "QUEUE_LIMIT"})
    assert attempts.failed(failed, 2 * S) is None


def test_what_the_server_answered_by_itself_has_no_span_either(attempts):
    assert attempts.completed(TaskCompleted(task_id=TASK), 1 * S) is None


def test_an_attempt_that_nothing_is_heard_of_ends_with_its_run(attempts):
    schedule(attempts, 1 * S, executor_id="e1")
    [span] = attempts.abandon(2 * S)
    assert span.attributes["stepgraph.outcome"] == "unreported"


def test_what_is_said_of_tasks_that_never_were_is_passed_over(attempts):
    """Whatever the server does by itself has no attempt."""
    assign(attempts, 1, 1 * S)
    assert attempts.failed(TaskFailed(task_id=TASK, usage={"input_tokens": 1}), 2 * S) is None
    assert attempts.lost(TaskLost(task_id=TASK), 2 * S) is None
    assert attempts.cancelled(TaskCancelled(task_id=TASK), 2 * S) is None
    assert attempts.input_tokens == 1
