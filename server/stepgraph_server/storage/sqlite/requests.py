"""Request ids in SQLite. Those that travel with an append are written by the group writer, in the same form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph_server.storage.sqlite.queries import QUERIES
from stepgraph_server.storage.sqlite.request_rows import request_of_row, request_row

if TYPE_CHECKING:
    import sqlite3

    from stepgraph_server.core.instants import Instant
    from stepgraph_server.storage.records import RequestRecord
    from stepgraph_server.storage.sqlite.readers import Readers
    from stepgraph_server.storage.sqlite.writer import Writer


class SqliteRequests:
    """See Requests."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def get(self, namespace: str, method: str, request_id: str) -> RequestRecord | None:
        """See Requests."""
        return await self._readers.run(
            lambda connection: _find(connection, namespace, method, request_id)
        )

    async def put(self, namespace: str, record: RequestRecord) -> RequestRecord:
        """See Requests."""

        def put(connection: sqlite3.Connection) -> RequestRecord:
            found = _find(connection, namespace, record.method, record.request_id)
            if found is None:
                connection.execute(QUERIES["insert_request"], request_row(namespace, record))
            return found or record

        return await self._writer.run(put)

    async def forget(self, created_before: Instant, limit: int) -> int:
        """See Requests."""
        arguments = {"created_before": created_before, "limit": limit}
        return await self._writer.run(
            lambda connection: connection.execute(QUERIES["forget_requests"], arguments).rowcount
        )


def _find(
    connection: sqlite3.Connection, namespace: str, method: str, request_id: str
) -> RequestRecord | None:
    row = connection.execute(QUERIES["find_request"], (namespace, method, request_id)).fetchone()
    return request_of_row(row) if row else None
