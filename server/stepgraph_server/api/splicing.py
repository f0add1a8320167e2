"""Responses of watches, put together from bytes that are serialized already.

Rules: an event is serialized once, when it is stored, and every watcher gets those bytes. A response around them is a tag, a
length and the bytes for each batch; the numbers of the fields come from the descriptors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from stepgraph.v1 import run_service_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Watching: TypeAlias = Literal["WatchRunResponse", "WatchRunsResponse", "StartAndWatchRunResponse"]

_LENGTH_DELIMITED: Final = 2


def varint(number: int) -> bytes:
    """Return a number that is not negative as protobuf writes it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _tag(message: Watching, field: str) -> bytes:
    descriptor = run_service_pb2.DESCRIPTOR.message_types_by_name[message]
    return varint(descriptor.fields_by_name[field].number << 3 | _LENGTH_DELIMITED)


_BATCHES: Final[Mapping[Watching, bytes]] = {
    "WatchRunResponse": _tag("WatchRunResponse", "batches"),
    "WatchRunsResponse": _tag("WatchRunsResponse", "batches"),
    "StartAndWatchRunResponse": _tag("StartAndWatchRunResponse", "batches"),
}
_RESUME_TOKEN: Final = _tag("WatchRunsResponse", "resume_token")


def spliced(message: Watching, batches: Sequence[bytes], resume_token: str = "") -> bytes:
    """Return a serialized response with these serialized WatchBatches; only WatchRuns gives a token."""
    tag = _BATCHES[message]
    parts: list[bytes] = []
    for batch in batches:
        parts += (tag, varint(len(batch)), batch)
    if resume_token:
        token = resume_token.encode()
        parts += (_RESUME_TOKEN, varint(len(token)), token)
    return b"".join(parts)
