"""The threads that read, each with a connection of its own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from stepgraph_server.storage.errors import JournalUnavailable
from stepgraph_server.storage.sqlite.connection import open_reader, using

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

READERS: Final = 2
"""So many reads at a time: one long read does not hold up the short ones. They share one interpreter, so more gain nothing."""


class Readers:
    """Runs reads beside the loop. Readers never wait for the writer, and see what is durable when they begin."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="stepgraph-reader")
        self._own = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._is_closed = False

    async def run(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `read` returns. Its connection is in a read transaction: all it reads is of one moment.

        Raises:
            JournalUnavailable: SQLite could not read, or the store is closed.
        """
        if self._is_closed:
            raise JournalUnavailable(str(self._path), "it is closed", "Start the server again")
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, read)

    async def close(self) -> None:
        """Wait for what is being read, and close the connections. Repeating it is harmless."""
        self._is_closed = True
        await asyncio.to_thread(self._pool.shutdown)
        while self._connections:
            self._connections.pop().close()

    def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        with using(self._path):
            connection = self._connection()
            connection.execute("BEGIN")
            try:
                return read(connection)
            finally:
                # An open read transaction would keep the log from being emptied.
                connection.execute("ROLLBACK")

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = open_reader(self._path)
            self._connections.append(connection)
        return connection
