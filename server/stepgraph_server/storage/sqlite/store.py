"""A store in one SQLite file: who opens what, and in which order it ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from stepgraph_server.storage.sqlite.connection import check_place, open_writer, opening
from stepgraph_server.storage.sqlite.graphs import SqliteGraphs
from stepgraph_server.storage.sqlite.interrupts import SqliteInterrupts
from stepgraph_server.storage.sqlite.journal import SqliteJournal
from stepgraph_server.storage.sqlite.lock import FileLock
from stepgraph_server.storage.sqlite.migrate import known_migrations, migrate
from stepgraph_server.storage.sqlite.queries import QUERIES
from stepgraph_server.storage.sqlite.readers import Readers
from stepgraph_server.storage.sqlite.requests import SqliteRequests
from stepgraph_server.storage.sqlite.runs import SqliteRuns
from stepgraph_server.storage.sqlite.values import SqliteValues, discard_incomplete
from stepgraph_server.storage.sqlite.writer import Writer

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from stepgraph_server.storage.store import OnAppended


class SqliteStore:
    """A `Store` in a file. Make a new one to open the file again.

    Beside `<path>` stand `<path>-wal` and `<path>-shm`, which belong to it, and `<path>.lock`, which holds nothing but
    the process id of whoever has it. Copy a live one with `sqlite3 <path> ".backup <copy>"`, never with `cp`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = FileLock(path)
        self._writer = Writer(path)
        self._readers = Readers(path)
        self.commits = self._writer.commits
        self._connection: sqlite3.Connection | None = None
        self.journal = SqliteJournal(self._writer, self._readers)
        self.runs = SqliteRuns(self._writer, self._readers)
        self.graphs = SqliteGraphs(self._writer, self._readers)
        self.values = SqliteValues(self._writer, self._readers)
        self.requests = SqliteRequests(self._writer, self._readers)
        self.interrupts = SqliteInterrupts(self._readers)

    async def start(self, on_appended: OnAppended) -> None:
        """See Store."""
        self._connection = await asyncio.to_thread(self._open)
        self._writer.start(self._connection, asyncio.get_running_loop(), on_appended)

    async def close(self) -> None:
        """See Store."""
        await self._writer.stop()
        await self._readers.close()
        if self._connection is not None:
            # The last connection that is closed empties the log into the file, which may take a moment.
            await asyncio.to_thread(self._connection.close)
            self._connection = None
        self._lock.release()

    async def check_writable(self) -> None:
        """See Store."""
        await self._writer.run(lambda connection: connection.execute(QUERIES["probe"]))

    def _open(self) -> sqlite3.Connection:
        with opening(self._path):
            check_place(self._path)
            self._lock.acquire()
            try:
                connection = open_writer(self._path)
                try:
                    migrate(connection, str(self._path), known_migrations())
                    discard_incomplete(connection)
                except BaseException:
                    connection.close()
                    raise
            except BaseException:
                self._lock.release()
                raise
        return connection
