"""Frames spliced from what was serialized before: all that is ready of one kind, cut at a size.

Rules: bytes in, bytes out. Field numbers are read from the descriptors, never written down here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph_server.core.wire import VARINT, tag, varint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from google.protobuf.message import Message

#: Where batches are cut: far below every limit of the transport, and large enough for a batch to pay.
MAX_BATCH_BYTES: Final = 1024 * 1024


def _number(message: type[Message], field: str) -> int:
    return message.DESCRIPTOR.fields_by_name[field].number


_TASKS_KEY: Final = tag(_number(pb.ConnectResponse, "tasks"))
_TASK_KEY: Final = tag(_number(pb.Tasks, "tasks"))
_TASKS_ACK_KEY: Final = tag(_number(pb.Tasks, "acks"))
_ACKS_KEY: Final = tag(_number(pb.ConnectResponse, "acks"))
_ACK_KEY: Final = tag(_number(pb.Acks, "acks"))
_ACK_TASK_ID_KEY: Final = tag(_number(pb.Ack, "task_id"))
_ACK_ATTEMPT_KEY: Final = tag(_number(pb.Ack, "attempt"), VARINT)
_ACK_VERDICT_KEY: Final = tag(_number(pb.Ack, "verdict"), VARINT)


def serialize_ack(task_id: str, attempt: int, verdict: int) -> bytes:
    """Serialize an `Ack`."""
    name = task_id.encode()
    return b"".join(
        (
            *(_ACK_TASK_ID_KEY, varint(len(name)), name),
            *(_ACK_ATTEMPT_KEY, varint(attempt)),
            *(_ACK_VERDICT_KEY, varint(verdict)),
        )
    )


def frames_of(acks: Sequence[bytes], tasks: Sequence[bytes]) -> Iterator[bytes]:
    """Yield frames of serialized `Ack` and `Task` messages, in this order.

    With tasks the acks travel in the same frames: a message costs either end as much as deciding a node does, whatever is
    in it.
    """
    if tasks:
        items = [(_TASKS_ACK_KEY, ack) for ack in acks]
        items += [(_TASK_KEY, task) for task in tasks]
        return _frames(_TASKS_KEY, items)
    return _frames(_ACKS_KEY, [(_ACK_KEY, ack) for ack in acks])


def _frames(frame_key: bytes, items: Sequence[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """Yield frames of at most `MAX_BATCH_BYTES`; an item that is larger by itself has a frame of its own."""
    parts: list[bytes] = []
    size = 0
    for item_key, item in items:
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
