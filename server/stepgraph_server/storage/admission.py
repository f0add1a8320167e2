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
    from stepgraph_server.storage.records import Append, Prefix, RequestRecord


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
    begins_after = append.prefix.last_sequence if append.prefix is not None else last_sequence
    if append.first_sequence != begins_after + 1:
        return SequenceConflict(append.key, append.first_sequence, last_sequence)
    return None


def prefix_missing(prefix: Prefix) -> str:
    """Return what is wrong with a prefix that is not there."""
    return (
        f"run {prefix.source.run_id} has no append that ends with event {prefix.last_sequence}, "
        "so that can't be the prefix of another run"
    )


def flaw_of(append: Append) -> str:
    """Return how an append breaks the contract of `Append`, or nothing."""
    if append.last_sequence < append.first_sequence or append.first_sequence < 1:
        return f"it has no events ({append.first_sequence} to {append.last_sequence})"
    begins = append.first_sequence == 1 or append.prefix is not None
    if (append.creation is not None) is not begins:
        return "a run is created with its first event or behind a prefix, and only then"
    if append.progress.last_sequence != append.last_sequence:
        return (
            f"its progress says {append.progress.last_sequence}, "
            f"and its last event is {append.last_sequence}"
        )
    return ""
