"""Pieces of watch responses, put together from bytes that are serialized already.

Rules: nothing here parses an event. A stored EventBatch and a WatchBatch hold events in the same form, in one field each whose
tag is one byte; so the bytes of a batch become those of a WatchBatch by writing another tag in front of each event. That is
done once per batch, whoever watches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stepgraph.v1 import event_pb2, run_service_pb2
from stepgraph_server.core.wire import varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.protobuf.message import Message

MAX_RESPONSE_BYTES: Final = 3 * 1024 * 1024
"""A response stays below this: gRPC clients refuse messages of more than 4 MiB, unless told otherwise."""

MAX_PART_BYTES: Final = 2 * 1024 * 1024
"""A batch is cut between events into parts of at most this. An event that is larger stands alone."""

BATCH_OVERHEAD_BYTES: Final = 192
"""More than the run id, tags and lengths of one WatchBatch take: a run id has at most 128 characters."""

_LENGTH_DELIMITED: Final = 2


def _tag(message: type[Message], field: str) -> int:
    """Return the tag of a length-delimited field, which must be one byte."""
    tag: int = message.DESCRIPTOR.fields_by_name[field].number << 3 | _LENGTH_DELIMITED
    assert tag < 0x80, "only tags of one byte can be written over"
    return tag


_STORED_EVENT: Final = _tag(event_pb2.EventBatch, "events")
_RUN_ID: Final = _tag(run_service_pb2.WatchBatch, "run_id")
_EVENT: Final = _tag(run_service_pb2.WatchBatch, "events")
_TRANSIENT: Final = _tag(run_service_pb2.WatchBatch, "transient_events")

_CUT_OFF: Final = "a batch ends in the middle of an event"


class Part(NamedTuple):
    """Some events of one batch as fields of a WatchBatch. `starts` says where each of them begins in `fields`."""

    first_sequence: int
    last_sequence: int
    fields: bytes
    starts: Sequence[int]

    def after(self, sequence: int) -> Part:
        """Return what comes after a sequence, which must be one of this part's but not its last."""
        skipped = sequence - self.first_sequence + 1
        start = self.starts[skipped]
        starts = [other - start for other in self.starts[skipped:]]
        return Part(sequence + 1, self.last_sequence, self.fields[start:], starts)


def parts_of(batch: bytes, first_sequence: int) -> list[Part]:
    """Return a serialized EventBatch as fields of a WatchBatch, in as few parts as the limit allows.

    Raises:
        ValueError: These bytes are no EventBatch, or one with fields that this server does not know.
    """
    fields = bytearray(batch)
    parts: list[Part] = []
    starts: list[int] = []
    begin = at = 0
    size = len(fields)
    while at < size:
        # Most events have less than 128 bytes, and a call for each would cost more than all else here.
        if fields[at] == _STORED_EVENT and at + 1 < size and fields[at + 1] < 0x80:
            end = at + 2 + fields[at + 1]
            if end > size:
                raise ValueError(_CUT_OFF)
        else:
            end = _end_of_item(fields, at)
        fields[at] = _EVENT
        if starts and end - begin > MAX_PART_BYTES:
            parts.append(_part(fields, begin, at, first_sequence, starts))
            first_sequence += len(starts)
            begin, starts = at, []
        starts.append(at - begin)
        at = end
    if starts:
        parts.append(_part(fields, begin, at, first_sequence, starts))
    return parts


def _part(fields: bytearray, begin: int, end: int, first_sequence: int, starts: list[int]) -> Part:
    return Part(first_sequence, first_sequence + len(starts) - 1, bytes(fields[begin:end]), starts)


def _end_of_item(fields: bytearray, at: int) -> int:
    """Return where the event that begins at `at` ends."""
    if fields[at] != _STORED_EVENT:
        message = f"byte {at} of a batch is {fields[at]}, which begins no event"
        raise ValueError(message)
    length = shift = 0
    for place in range(at + 1, len(fields)):
        length |= (fields[place] & 0x7F) << shift
        shift += 7
        if fields[place] < 0x80:
            end = place + 1 + length
            if end <= len(fields):
                return end
            break
    raise ValueError(_CUT_OFF)


def transient_field(event: bytes) -> bytes:
    """Return a serialized TransientEvent as a field of a WatchBatch."""
    return b"".join((bytes((_TRANSIENT,)), varint(len(event)), event))


def watch_batch(run_id: bytes, fields: Iterable[bytes]) -> bytes:
    """Return a serialized WatchBatch of a run, from the fields of its events and then of its transient ones."""
    return b"".join((bytes((_RUN_ID,)), varint(len(run_id)), run_id, *fields))
