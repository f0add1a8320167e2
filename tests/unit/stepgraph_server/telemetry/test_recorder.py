"""The thread that records: bounded, counted, and never in anybody's way."""

from __future__ import annotations

import logging
import threading

import pytest

from stepgraph_server.telemetry import recorder
from stepgraph_server.telemetry.projector import Durable
from stepgraph_server.telemetry.recorder import SpanRecorder
from tests.support.otlp_events import STARTED, completed_node, events, superstep, trace

PATIENCE_S = 5.0


class Sink:
    """Takes spans, or holds them up, or does not take them."""

    def __init__(self):
        self.names = []
        self.takes = True
        self.batches = []
        self.came = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.closed = False

    def send(self, spans):
        self.came.set()
        self.may_go_on.wait(PATIENCE_S)
        self.batches.append(len(spans))
        if self.takes and not self.closed:
            self.names += [span.name for span in spans]
        return self.takes and not self.closed

    def close(self):
        self.closed = True
        self.may_go_on.set()


def durable(run_id="r1", size=10):
    facts = (STARTED, superstep(), completed_node(), ("run_completed", {}))
    return Durable(trace=trace(run_id=run_id), events=events(*facts), size=size, rests=True)


@pytest.fixture
def sink():
    return Sink()


@pytest.fixture
def record(sink):
    """Make recorders that are closed at the end."""
    made = []

    def make(history=lambda *_: None, delay_s=0.001):
        it = SpanRecorder(sink, history, delay_s)
        it.start()
        made.append(it)
        return it

    yield make
    for it in made:
        it.close(PATIENCE_S)
        assert not it._thread.is_alive()


def test_what_is_offered_is_sent(record, sink):
    it = record()
    it.offer(durable())
    assert sink.came.wait(PATIENCE_S)
    it.close(PATIENCE_S)
    assert sink.names == ["node a", "run g"]
    assert (it.sent, it.lost.total) == (2, 0)


def test_what_waits_at_the_end_is_sent(record, sink):
    it = record(delay_s=PATIENCE_S)
    it.offer(durable())
    it.close(PATIENCE_S)
    assert sink.names == ["node a", "run g"]


def test_what_comes_too_fast_is_dropped_and_counted(record, sink, monkeypatch, caplog):
    monkeypatch.setattr(recorder, "MAX_WAITING_EVENTS", 8)
    sink.may_go_on.clear()
    it = record()
    it.offer(durable())
    assert sink.came.wait(PATIENCE_S)  # from here on nothing is taken
    for number in range(5):
        it.offer(durable(f"r{number}"))
    assert it.lost.overflowed == 12
    with caplog.at_level(logging.WARNING):
        sink.may_go_on.set()
        it.close(PATIENCE_S)
    assert it.sent == 6
    assert caplog.records[-1].action == "spans.lost"
    assert caplog.records[-1].dropped_events == 12


def test_bytes_are_bounded_too(record, sink, monkeypatch):
    monkeypatch.setattr(recorder, "MAX_WAITING_BYTES", 100)
    it = record(delay_s=PATIENCE_S)
    it.offer(durable(size=60))
    it.offer(durable("r2", size=60))
    assert it.lost.overflowed == 4


def test_what_nobody_takes_is_counted_and_said_once(record, sink, caplog):
    sink.takes = False
    it = record()
    with caplog.at_level(logging.WARNING):
        for number in range(20):
            sink.came.clear()
            it.offer(durable(f"r{number}"))
            assert sink.came.wait(PATIENCE_S)
    it.close(PATIENCE_S)
    assert it.lost.unsent == 40
    said = [each for each in caplog.records if each.action == "spans.lost"]
    assert len(said) <= 2  # one when it began, one at the end


def test_events_whose_past_can_not_be_read_are_counted(record):
    it = record()
    late = durable()
    late.events = late.events[2:]
    it.offer(late)
    it.close(PATIENCE_S)
    assert (it.sent, it.lost.unread) == (0, 2)


def test_a_fault_of_ours_costs_its_spans_and_no_others(record, sink, caplog):
    def broken(*_):
        raise ZeroDivisionError

    it = record(broken)
    late = durable()
    late.events = late.events[2:]
    it.offer(late)
    it.offer(durable("r2"))
    it.close(PATIENCE_S)
    actions = [each.action for each in caplog.records]
    assert "spans.fault" in actions


def test_many_spans_go_in_batches(record, sink, monkeypatch):
    monkeypatch.setattr(recorder, "BATCH_SPANS", 4)
    monkeypatch.setattr(recorder, "SLICE_SPANS", 2)
    it = record(delay_s=PATIENCE_S)
    for number in range(5):
        it.offer(durable(f"r{number}"))
    it.close(PATIENCE_S)
    assert sink.batches == [4, 4, 2]


def test_closing_is_bounded_when_the_collector_hangs(record, sink):
    sink.may_go_on.clear()
    it = record()
    it.offer(durable())
    assert sink.came.wait(PATIENCE_S)
    it.offer(durable("r2"))
    it.close(0.05)
    assert sink.closed
