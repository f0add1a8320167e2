"""The journal in SQLite: writes go to the writer, reads to the readers."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from stepgraph_server.storage.records import RunKey, StoredBatch
from stepgraph_server.storage.sqlite.queries import QUERIES

if TYPE_CHECKING:
    import sqlite3

    from stepgraph_server.storage.journal import Backlog
    from stepgraph_server.storage.records import Append
    from stepgraph_server.storage.sqlite.readers import Readers
    from stepgraph_server.storage.sqlite.writer import Writer


class SqliteJournal:
    """See Journal."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._readers = readers
        self._writer = writer

    def submit(self, append: Append) -> None:
        """See Journal."""
        self._writer.submit(append)

    def backlog(self) -> Backlog:
        """See Journal."""
        return self._writer.backlog()

    def head_position(self) -> int:
        """See Journal."""
        return self._writer.head_position()

    async def read(self, key: RunKey, after_sequence: int, max_bytes: int) -> list[StoredBatch]:
        """See Journal."""

        def read(connection: sqlite3.Connection) -> list[StoredBatch]:
            arguments = {
                "namespace": key.namespace,
                "run_id": key.run_id,
                "after_sequence": after_sequence,
            }
            found: list[StoredBatch] = []
            total = 0
            with closing(connection.execute(QUERIES["read_run"], arguments)) as cursor:
                for first, last, position, batch in cursor:
                    total += len(batch)
                    if found and total > max_bytes:
                        break
                    found.append(_batch(first, last, position, batch))
            return found

        return await self._readers.run(read)

    async def read_positions(
        self, namespace: str, after_position: int, max_bytes: int
    ) -> list[tuple[RunKey, StoredBatch]]:
        """See Journal."""

        def read(connection: sqlite3.Connection) -> list[tuple[RunKey, StoredBatch]]:
            arguments = {"namespace": namespace, "after_position": after_position}
            found: list[tuple[RunKey, StoredBatch]] = []
            total = 0
            with closing(connection.execute(QUERIES["read_positions"], arguments)) as cursor:
                for run_id, first, last, position, batch in cursor:
                    total += len(batch)
                    if found and total > max_bytes:
                        break
                    found.append((RunKey(namespace, run_id), _batch(first, last, position, batch)))
            return found

        return await self._readers.run(read)


def _batch(first: int, last: int, position: int, batch: bytes) -> StoredBatch:
    return StoredBatch(first_sequence=first, last_sequence=last, position=position, batch=batch)
