"""Which appends may be stored: the rules that every backend keeps, without any backend.

Rules: pure functions; a backend says what it knows of a run and of a request id, inside the transaction in which it will write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph_server.storage.errors import (
    AppendInvalid,
    RequestIdReused,
    RunExists,
    SequenceConflict,
)

if TYPE_CHECKING:
    from stepgraph_server.storage.errors import StorageError
    from stepgraph_server.storage.records import Append, RequestRecord


def refusal(
    append: Append, last_sequence: int, used_request: RequestRecord | None
) -> StorageError | None:
    """Return why an append can't be stored, or None if it can.

    Args:
        append: The append.
        last_sequence: Where its run ends now, 0 if there is no such run.
        used_request: What the request id of the append was used for before.
    """
    # Before all else: a repeated request must hear of its first response, although by now its run exists or went on.
    if used_request is not None:
        return RequestIdReused(used_request)
    flaw = flaw_of(append)
    if flaw:
        return AppendInvalid(append.key, flaw)
    if append.creation is not None and last_sequence:
        return RunExists(append.key)
    if append.first_sequence != last_sequence + 1:
        return SequenceConflict(append.key, append.first_sequence, last_sequence)
    return None


def flaw_of(append: Append) -> str:
    """Return how an append breaks the contract of `Append`, or nothing."""
    if append.last_sequence < append.first_sequence or append.first_sequence < 1:
        return f"it has no events ({append.first_sequence} to {append.last_sequence})"
    if (append.creation is not None) is not (append.first_sequence == 1):
        return "a run is created with its first event, and only then"
    if append.progress.last_sequence != append.last_sequence:
        return (
            f"its progress says {append.progress.last_sequence}, "
            f"and its last event is {append.last_sequence}"
        )
    return ""
