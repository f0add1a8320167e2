"""Frames spliced from bytes: what was serialized once is not parsed and serialized again to be sent.

Rules: only the length-delimited form of protobuf, which is a promise of its encoding; field numbers are read from the
descriptors, never written down here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph.v1 import executor_service_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from google.protobuf.descriptor import Descriptor

#: Where batches are cut: far below every limit of the transport, and large enough for a batch to pay.
MAX_BATCH_BYTES: Final = 1024 * 1024

_SMALL: Final = [bytes((number,)) for number in range(0x80)]


def varint(number: int) -> bytes:
    """Encode a number of 0 or more."""
    if number < 0x80:
        return _SMALL[number]
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _key(message: Descriptor, field: str, wire_type: int) -> bytes:
    return varint(message.fields_by_name[field].number << 3 | wire_type)


_DELIMITED: Final = 2
_VARINT: Final = 0

_FRAME: Final = executor_service_pb2.ConnectResponse.DESCRIPTOR
_TASKS_KEY: Final = _key(_FRAME, "tasks", _DELIMITED)
_TASK_KEY: Final = _key(executor_service_pb2.Tasks.DESCRIPTOR, "tasks", _DELIMITED)
_ACKS_KEY: Final = _key(_FRAME, "acks", _DELIMITED)
_ACK_KEY: Final = _key(executor_service_pb2.Acks.DESCRIPTOR, "acks", _DELIMITED)
_ACK_TASK_ID_KEY: Final = _key(executor_service_pb2.Ack.DESCRIPTOR, "task_id", _DELIMITED)
_ACK_ATTEMPT_KEY: Final = _key(executor_service_pb2.Ack.DESCRIPTOR, "attempt", _VARINT)
_ACK_VERDICT_KEY: Final = _key(executor_service_pb2.Ack.DESCRIPTOR, "verdict", _VARINT)


def ack(task_id: str, attempt: int, verdict: int) -> bytes:
    """Serialize an `Ack`."""
    name = task_id.encode()
    return b"".join(
        (
            *(_ACK_TASK_ID_KEY, varint(len(name)), name),
            *(_ACK_ATTEMPT_KEY, varint(attempt)),
            *(_ACK_VERDICT_KEY, varint(verdict)),
        )
    )


def task_frames(tasks: Sequence[bytes]) -> list[bytes]:
    """Build frames of serialized `Task` messages, in order."""
    return list(_frames(_TASKS_KEY, _TASK_KEY, tasks))


def ack_frames(acks: Sequence[bytes]) -> list[bytes]:
    """Build frames of serialized `Ack` messages, in order."""
    return list(_frames(_ACKS_KEY, _ACK_KEY, acks))


def _frames(frame_key: bytes, item_key: bytes, items: Sequence[bytes]) -> Iterator[bytes]:
    """Yield frames below `MAX_BATCH_BYTES`; an item that is larger by itself has a frame of its own."""
    parts: list[bytes] = []
    size = 0
    for item in items:
        length = varint(len(item))
        needed = len(item_key) + len(length) + len(item)
        if parts and size + needed > MAX_BATCH_BYTES:
            yield b"".join((frame_key, varint(size), *parts))
            parts = []
            size = 0
        parts += (item_key, length, item)
        size += needed
    if parts:
        yield b"".join((frame_key, varint(size), *parts))
