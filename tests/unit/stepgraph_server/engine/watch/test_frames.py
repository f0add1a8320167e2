"""Responses out of stored bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepgraph.v1 import event_pb2, run_service_pb2
from stepgraph_server.engine.watch import frames as frames_module
from stepgraph_server.engine.watch.frames import (
    MAX_PART_BYTES,
    parts_of,
    transient_field,
    watch_batch,
)


def made(*sizes: int, first: int = 1) -> event_pb2.EventBatch:
    events = [
        event_pb2.RunEvent(sequence=number, run_paused=event_pb2.RunPaused(reason="x" * size))
        for number, size in enumerate(sizes, first)
    ]
    return event_pb2.EventBatch(events=events)


@given(st.lists(st.integers(0, 400), max_size=30), st.integers(1, 1_000_000))
def test_a_batch_becomes_the_fields_of_a_watch_batch(sizes: list[int], first: int) -> None:
    """The same events, without parsing one."""
    batch = made(*sizes, first=first)
    parts = parts_of(batch.SerializeToString(), first)
    assert len(parts) == (1 if sizes else 0)
    fields = [part.fields for part in parts]
    parsed = run_service_pb2.WatchBatch.FromString(watch_batch(b"run", fields))
    assert parsed.run_id == "run"
    assert list(parsed.events) == list(batch.events)
    if parts:
        assert (parts[0].first_sequence, parts[0].last_sequence) == (first, first + len(sizes) - 1)


@given(st.lists(st.integers(0, 400), min_size=2, max_size=30), st.data())
def test_a_part_is_cut_behind_any_event_but_its_last(sizes: list[int], data: st.DataObject) -> None:
    """For a watcher that begins in the middle of it."""
    batch = made(*sizes, first=5)
    (part,) = parts_of(batch.SerializeToString(), 5)
    after = data.draw(st.integers(5, 5 + len(sizes) - 2))
    cut = part.after(after)
    assert (cut.first_sequence, cut.last_sequence) == (after + 1, part.last_sequence)
    parsed = run_service_pb2.WatchBatch.FromString(cut.fields)
    assert list(parsed.events) == list(batch.events)[after - 4 :]
    if cut.first_sequence < cut.last_sequence:
        again = cut.after(after + 1)
        assert run_service_pb2.WatchBatch.FromString(again.fields).events[0].sequence == after + 2


def test_a_large_batch_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut between events; one that is larger than a part stands alone."""
    monkeypatch.setattr(frames_module, "MAX_PART_BYTES", 1_000)
    parts = parts_of(made(300, 300, 300, 300, 5_000, 10).SerializeToString(), 1)
    spans = [(part.first_sequence, part.last_sequence) for part in parts]
    assert spans == [(1, 3), (4, 4), (5, 5), (6, 6)]
    events = [
        event.sequence
        for part in parts
        for event in run_service_pb2.WatchBatch.FromString(part.fields).events
    ]
    assert events == [1, 2, 3, 4, 5, 6]
    assert MAX_PART_BYTES * 1.5 <= frames_module.MAX_RESPONSE_BYTES


@pytest.mark.parametrize(
    "broken",
    [b"\x12\x00", b"\x08\x01", b"\x0a", b"\x0a\x05ab", b"\x0a\x80", b"\x0a\x01"],
    ids=["other field", "number", "no length", "too short", "half a length", "nothing"],
)
def test_what_is_no_batch_is_refused(broken: bytes) -> None:
    """Rather than given to a client that can't read it."""
    with pytest.raises(ValueError, match="batch"):
        parts_of(broken, 1)


def test_a_transient_event_becomes_a_field() -> None:
    """Behind the events of an item."""
    event = event_pb2.TransientEvent(task_id="t" * 300, attempt=3)
    fields = [transient_field(event.SerializeToString())] * 2
    parsed = run_service_pb2.WatchBatch.FromString(watch_batch("ü".encode(), fields))
    assert parsed.run_id == "ü"
    assert list(parsed.transient_events) == [event, event]
