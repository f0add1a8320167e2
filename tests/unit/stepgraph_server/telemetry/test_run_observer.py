"""What the engine tells telemetry."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from stepgraph.v1 import run_pb2
from stepgraph_server.telemetry.run_observer import RunObserver
from stepgraph_server.telemetry.sampling import Sampler
from stepgraph_server.telemetry.tally import Tally
from tests.support.otlp_events import CALLER, STARTED, events, trace

EVENTS = events(STARTED)


class Recorder:
    def __init__(self):
        self.offered = []

    def offer(self, durable):
        self.offered.append(durable)


def state(traceparent=""):
    return SimpleNamespace(
        run_id="r1", graph=None, traceparent=traceparent, tracestate="", started_at=1
    )


def test_without_anything_to_tell_it_to_nothing_is_recorded_and_a_trace_is_passed_on():
    it = RunObserver()
    given = it.trace_of("default", state(CALLER))
    assert not given.is_sampled
    assert given.traceparent("t", 1) == CALLER
    it.durable(given, EVENTS, 10, run_pb2.RUN_STATUS_RUNNING)


def test_only_what_is_sampled_is_offered():
    recorder = Recorder()
    it = RunObserver(Sampler(ratio=0.0), recorder)
    it.durable(it.trace_of("default", state()), EVENTS, 10, run_pb2.RUN_STATUS_RUNNING)
    assert recorder.offered == []
    sampled = it.trace_of("default", state(CALLER))
    it.durable(sampled, EVENTS, 10, run_pb2.RUN_STATUS_RUNNING)
    [offered] = recorder.offered
    assert (offered.trace, offered.events, offered.size) == (sampled, EVENTS, 10)


def test_everything_is_counted_sampled_or_not():
    tally = Tally()
    it = RunObserver(Sampler(ratio=0.0), None, tally)
    it.durable(it.trace_of("default", state()), EVENTS, 10, run_pb2.RUN_STATUS_RUNNING)
    assert (tally.runs_started, tally.bytes) == (1, 10)


@pytest.mark.parametrize(
    ("status", "rests"),
    [("RUNNING", False), ("STOPPING", False), ("SUSPENDED", True), ("COMPLETED", True)],
)
def test_a_run_rests_when_nothing_is_under_way_with_it(status, rests):
    recorder = Recorder()
    it = RunObserver(Sampler(ratio=1.0), recorder)
    it.durable(trace(), EVENTS, 10, run_pb2.RunStatus.Value(f"RUN_STATUS_{status}"))
    assert recorder.offered[0].rests == rests
