"""The port of request ids: what makes a repeated request harmless.

Rules: where a request appends to a journal, its record travels with the append and is stored in the same transaction; only
what appends nothing puts its record here by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from stepgraph_server.core.instants import HOUR, Span

if TYPE_CHECKING:
    from stepgraph_server.core.instants import Instant
    from stepgraph_server.storage.records import RequestRecord

REQUEST_RETENTION: Final = Span(24 * HOUR)
"""How long a record is kept at least; the schema promises it to clients."""


class Requests(Protocol):
    """Records of requests of all namespaces, by method and request id."""

    async def get(self, namespace: str, method: str, request_id: str) -> RequestRecord | None:
        """Return what a request id of a method was used for, or None."""
        ...

    async def put(self, namespace: str, record: RequestRecord) -> RequestRecord:
        """Store a record unless there is one, and return the one that stands, the first.

        Raises:
            JournalUnavailable: Nothing could be written.
        """
        ...

    async def forget(self, created_before: Instant, limit: int) -> int:
        """Delete at most `limit` of the oldest records from before an instant; return how many. Repeat until 0.

        Raises:
            JournalUnavailable: Nothing could be written.
        """
        ...
