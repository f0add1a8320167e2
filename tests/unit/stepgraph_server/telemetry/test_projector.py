"""Projections of many runs: what is remembered, and what is read again."""

from __future__ import annotations

from stepgraph_server.telemetry import projector
from stepgraph_server.telemetry.projector import Durable, Projector
from tests.support.otlp_events import STARTED, completed_node, events, superstep, trace

ALL = events(STARTED, superstep(), completed_node(), superstep(2, "b"), completed_node("2/b"))


def durable(first, last, *, rests=False, run_id="r1"):
    chosen = [event for event in ALL if first <= event.sequence <= last]
    return Durable(trace=trace(run_id=run_id), events=chosen, size=1, rests=rests)


class Journal:
    """Gives two events at a time, up to what is there."""

    def __init__(self, length=99):
        self.length = length
        self.reads = []

    def __call__(self, namespace, run_id, after):
        self.reads.append((namespace, run_id, after))
        return [event for event in ALL if after < event.sequence <= min(after + 2, self.length)]


def names(spans):
    return [span.name for span in spans]


def test_nothing_is_read_of_a_run_that_is_followed_from_its_start():
    journal = Journal()
    it = Projector(journal)
    assert names(it.take(durable(1, 2))) == []
    assert names(it.take(durable(3, 5))) == ["node a", "node b"]
    assert journal.reads == []


def test_after_a_restart_the_beginnings_are_read_and_no_span_is_made_twice():
    journal = Journal()
    spans = Projector(journal).take(durable(5, 5))
    assert names(spans) == ["node b"]
    assert spans[0].start_ns == 4_000_000_000
    assert journal.reads == [("default", "r1", 0), ("default", "r1", 2)]


def test_nothing_is_held_for_a_run_that_rests():
    journal = Journal()
    it = Projector(journal)
    it.take(durable(1, 4, rests=True))
    assert len(it) == 0
    assert names(it.take(durable(5, 5))) == ["node b"]
    assert journal.reads


def test_what_was_dropped_in_between_is_read_again():
    journal = Journal()
    it = Projector(journal)
    it.take(durable(1, 1))
    assert names(it.take(durable(5, 5))) == ["node b"]
    assert journal.reads[0] == ("default", "r1", 1)


def test_what_can_not_be_read_gives_no_spans_and_is_tried_again():
    assert Projector(lambda *_: None).take(durable(5, 5)) is None
    journal = Journal(length=1)
    it = Projector(journal)
    assert it.take(durable(3, 3)) is None
    journal.length = 9
    assert names(it.take(durable(5, 5))) == ["node b"]


def test_the_number_of_runs_is_bounded(monkeypatch):
    monkeypatch.setattr(projector, "MAX_RUNS", 2)
    it = Projector(Journal())
    for run_id in ("r1", "r2", "r1", "r3"):
        it.take(durable(1, 1, run_id=run_id))
    assert list(it._runs) == [("default", "r1"), ("default", "r3")]
