"""The bounded buffer of a watcher."""

from __future__ import annotations

import pytest

from stepgraph.v1 import event_pb2, run_service_pb2
from stepgraph_server.engine.watch import buffer as buffer_module
from stepgraph_server.engine.watch.buffer import AttemptKey, Buffer, ShownBatch, ShownTransient
from tests.contracts.storing import batch, key
from tests.unit.stepgraph_server.engine.watch.watching import delta

ATTEMPT = AttemptKey(key(), "1/n/t0", 1)


def shown(first: int = 1, last: int = 3) -> ShownBatch:
    return ShownBatch(key(), batch(first, last), first, last, 9, terminal=False)


def transient(text: str = "x") -> ShownTransient:
    return ShownTransient(ATTEMPT, delta(text).SerializeToString())


def kinds(transients: list[ShownTransient]) -> list[str | None]:
    parsed = [run_service_pb2.WatchBatch.FromString(one.field) for one in transients]
    return [one.transient_events[0].WhichOneof("kind") for one in parsed]


@pytest.mark.parametrize("summary", [False, True])
def test_the_bytes_of_a_view_are_made_once(summary: bool) -> None:
    """And shared from then on."""
    one = shown()
    assert one.parts(summary=summary) is one.parts(summary=summary)
    (part,) = one.parts(summary=summary)
    assert (part.first_sequence, part.last_sequence) == (1, 3)


def test_a_batch_without_room_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until something is taken out."""
    monkeypatch.setattr(buffer_module, "MAX_BUFFER_BYTES", 2 * shown().size)
    buffer = Buffer()
    assert [buffer.add(shown()) for _ in range(3)] == [True, True, False]
    assert len(buffer) == 2
    buffer.pop()
    assert buffer.add(shown())
    buffer.push(shown())
    assert len(buffer) == 3


def test_transients_without_room_are_dropped_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once, for as long as the word still waits."""
    monkeypatch.setattr(buffer_module, "MAX_TRANSIENT_BYTES", 2 * transient().size)
    buffer = Buffer()
    for _ in range(6):
        buffer.add_transient(transient())
    assert len(buffer) == 3
    for _ in range(3):
        buffer.pop()
    for _ in range(6):
        buffer.add_transient(transient())
    assert kinds(buffer.clear()) == ["progress", "progress", "progress_dropped"]


def test_a_discard_is_never_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a watcher would go on with a text that does not count."""
    monkeypatch.setattr(buffer_module, "MAX_TRANSIENT_BYTES", 0)
    buffer = Buffer()
    buffer.add_transient(ShownTransient.discarded(ATTEMPT))
    buffer.add_transient(ShownTransient.discarded(ATTEMPT))
    assert kinds(buffer.clear()) == ["attempt_discarded", "attempt_discarded"]


def test_clearing_gives_back_what_was_transient() -> None:
    """Batches are in the journal; these are nowhere else."""
    buffer = Buffer()
    buffer.push(shown())
    one = transient()
    buffer.add_transient(one)
    assert buffer.first() is not one
    assert buffer.clear() == [one]
    assert len(buffer) == 0
    assert buffer._size == buffer._transient_size == 0


def test_the_words_name_their_attempt() -> None:
    """Which text does not count, or lacks something."""
    for made in (ShownTransient.discarded(ATTEMPT), ShownTransient.dropped(ATTEMPT)):
        parsed = run_service_pb2.WatchBatch.FromString(made.field).transient_events[0]
        assert (parsed.task_id, parsed.attempt) == ("1/n/t0", 1)
    assert ShownTransient.discarded(ATTEMPT).is_discard
    assert not ShownTransient.dropped(ATTEMPT).is_discard
    assert event_pb2.TransientEvent().WhichOneof("kind") is None
