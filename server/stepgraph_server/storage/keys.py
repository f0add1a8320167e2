"""What appends are known by: the run that they belong to, and the request that they carry out.

Rules: both the records and the errors of storage name these, so they stand below both; take them from `records`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from stepgraph_server.core.instants import Instant


class RunKey(NamedTuple):
    """A run, among all runs of a store."""

    namespace: str
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """The first response to a request that changes something, kept for whoever repeats it.

    `fingerprint` is the digest of the request: the same id with another fingerprint is a mistake of the caller.
    """

    method: str
    request_id: str
    fingerprint: str
    response: bytes
    create_time: Instant
