"""The metrics of a server."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from stepgraph_server.telemetry.measurements import Measurements
from stepgraph_server.telemetry.metrics import Sources, metrics_of
from stepgraph_server.telemetry.recorder import Lost
from tests.support.otlp_events import STARTED, events

#: All that a label may ever be, but for bounds of histograms.
VALUES = {
    "status": {"completed", "failed", "cancelled"},
    "type": {"input", "output"},
    "reason": {"unspecified", "disconnected", "forgotten", "withdrawn", "rejected"},
    "verdict": {"accepted", "duplicate", "stale", "conflict"},
    "what": {"spans", "events"},
}


def sources(**fields):
    verdicts = tuple((verdict, 0) for verdict in sorted(VALUES["verdict"]))
    recorder = SimpleNamespace(sent=7, lost=Lost(overflowed=1, unread=2, unsent=3))
    measured = Measurements(verdicts=verdicts, **fields)
    return Sources(measured=measured, recorder=recorder)


def readings(given):
    return {
        (metric.name, *labels.values()): value
        for metric in metrics_of(given)
        for labels, value in metric.read()
    }


def test_everything_that_was_promised_is_there():
    names = {metric.name for metric in metrics_of(sources())}
    assert {
        "stepgraph.queue.tasks",
        "stepgraph.queue.oldest_age",
        "stepgraph.attempts.in_flight",
        "stepgraph.attempts.started",
        "stepgraph.retries",
        "stepgraph.results",
        "stepgraph.sessions",
        "stepgraph.watchers",
        "stepgraph.runs.started",
        "stepgraph.runs.ended",
        "stepgraph.journal.commit.bucket",
        "stepgraph.loop.lag.bucket",
        "stepgraph.tokens",
        "stepgraph.journal.size",
        "stepgraph.spans.lost",
    } <= names


def test_each_name_stands_for_one_metric_that_says_what_it_is():
    metrics = metrics_of(sources())
    assert len({metric.name for metric in metrics}) == len(metrics)
    assert all(metric.unit and metric.meaning for metric in metrics)


@pytest.mark.parametrize("metric", metrics_of(sources()), ids=lambda metric: metric.name)
def test_a_label_has_one_of_a_few_values_and_all_of_them_from_the_start(metric):
    for labels, value in metric.read():
        assert tuple(labels) == metric.labels
        assert value >= 0
    for label in metric.labels:
        if label != "le":
            assert {labels[label] for labels, _ in metric.read()} == VALUES[label]


def test_what_is_counted_and_measured_is_what_is_read():
    given = sources(queued_tasks=2, oldest_task_s=1.5, watchers=4)
    given.tally.count(events(STARTED), 10)
    given.commits.observe(0.002)
    seen = readings(given)
    assert seen["stepgraph.queue.tasks",] == 2
    assert seen["stepgraph.queue.oldest_age",] == 1.5
    assert seen["stepgraph.watchers",] == 4
    assert seen["stepgraph.runs.started",] == 1
    assert seen["stepgraph.journal.size",] == 10
    assert seen["stepgraph.journal.commit.bucket", "0.001"] == 0
    assert seen["stepgraph.journal.commit.bucket", "0.0025"] == 1
    assert seen["stepgraph.journal.commit.time",] == 0.002
    assert seen["stepgraph.spans.lost", "events"] == 3
    assert seen["stepgraph.spans.lost", "spans"] == 3


def test_measurements_are_read_anew_each_time():
    given = sources()
    metrics = metrics_of(given)
    given.measured = Measurements(queued_tasks=9)
    [metric] = [each for each in metrics if each.name == "stepgraph.queue.tasks"]
    assert list(metric.read()) == [({}, 9)]


def test_without_spans_there_are_no_metrics_of_them():
    assert not [each for each in metrics_of(Sources()) if each.name.startswith("stepgraph.spans")]
