"""What happened in runs, counted."""

from __future__ import annotations

import pytest

from stepgraph.v1.event_pb2 import TaskLossReason
from stepgraph_server.telemetry.tally import LOSSES, Tally
from tests.support.otlp_events import STARTED, TASK, completed_node, events, scheduled, superstep

USAGE = {"input_tokens": 5, "output_tokens": 2}
OF_TASK = {"task_id": TASK, "attempt": 1}


def tally(*facts):
    it = Tally()
    it.count(events(*facts), 100)
    return it


def test_events_and_their_bytes_are_counted():
    it = tally(STARTED, superstep())
    it.count(events(completed_node()), 11)
    assert (it.events, it.bytes) == (3, 111)


def test_runs_and_nodes_are_counted_by_how_they_ended():
    it = tally(
        STARTED,
        completed_node(),
        ("node_failed", {}),
        ("node_cancelled", {}),
        ("node_skipped", {}),
        ("run_failed", {}),
        ("run_completed", {}),
        ("run_cancelled", {}),
        ("run_completed", {}),
        ("interrupt_opened", {}),
    )
    assert it.runs_started == 1
    assert it.runs_ended == {"completed": 2, "failed": 1, "cancelled": 1}
    assert it.nodes_ended == {"completed": 1, "failed": 1, "cancelled": 1}
    assert it.questions_opened == 1


def test_an_attempt_begins_when_it_is_assigned():
    assert tally(scheduled({})).attempts_started == 1
    assert tally(scheduled({}, assigned=False)).attempts_started == 0
    assert (
        tally(scheduled({}, assigned=False), ("task_assigned", {"task_id": TASK})).attempts_started
        == 1
    )


def test_failures_are_attempts_that_failed_and_retries_those_that_are_tried_again():
    it = tally(
        ("task_failed", {**OF_TASK, "retry_time": "1970-01-01T00:00:09Z", "usage": USAGE}),
        ("task_failed", OF_TASK),
        ("task_failed", {"task_id": TASK}),
    )
    assert (it.attempts_failed, it.retries) == (2, 1)
    assert (it.input_tokens, it.output_tokens) == (5, 2)


def test_tokens_count_whatever_became_of_the_attempt():
    it = tally(
        ("task_completed", {**OF_TASK, "result": {"llm": {"usage": USAGE}}}),
        ("task_completed", {**OF_TASK, "result": {"agent": {"usage": USAGE}}}),
        ("task_completed", {**OF_TASK, "result": {"tool": {}}}),
        ("task_cancelled", {**OF_TASK, "usage": USAGE}),
    )
    assert (it.input_tokens, it.output_tokens) == (15, 6)


@pytest.mark.parametrize("reason", [*TaskLossReason.values(), 99])
def test_losses_are_counted_by_how(reason):
    it = tally(("task_lost", {**OF_TASK, "reason": reason}))
    assert sum(it.attempts_lost.values()) == 1
    assert it.attempts_lost[LOSSES.get(reason, "unspecified")] == 1
