"""Responses of watches, put together from bytes that are serialized already.

Rules: an event is serialized once, when it is stored, and every watcher gets those bytes. A response around them is a tag, a
length and the bytes for each batch; the numbers of the fields come from the descriptors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from stepgraph.v1 import run_service_pb2
from stepgraph_server.core.wire import join_repeated, length_delimited

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Watching: TypeAlias = Literal["WatchRunResponse", "WatchRunsResponse", "StartAndWatchRunResponse"]


def _number(message: Watching, field: str) -> int:
    descriptor = run_service_pb2.DESCRIPTOR.message_types_by_name[message]
    return descriptor.fields_by_name[field].number


_BATCHES: Final[Mapping[Watching, int]] = {
    "WatchRunResponse": _number("WatchRunResponse", "batches"),
    "WatchRunsResponse": _number("WatchRunsResponse", "batches"),
    "StartAndWatchRunResponse": _number("StartAndWatchRunResponse", "batches"),
}
_RESUME_TOKEN: Final = _number("WatchRunsResponse", "resume_token")


def spliced(message: Watching, batches: Sequence[bytes], resume_token: str = "") -> bytes:
    """Return a serialized response with these serialized WatchBatches; only WatchRuns gives a token."""
    data = join_repeated(_BATCHES[message], batches)
    if resume_token:
        data += length_delimited(_RESUME_TOKEN, resume_token.encode())
    return data
