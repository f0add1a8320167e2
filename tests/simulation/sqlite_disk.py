"""The real SQLite store on a disk that fails, without its threads.

Rules: what the writer's thread does is done on the loop, in the same order; a commit can fail before it, after it, or with an outcome
that nobody knows. A server that is killed leaves its transaction open, and its connections are closed without a commit.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from stepgraph.v1 import event_pb2
from stepgraph_server.storage.sqlite.connection import unavailable
from stepgraph_server.storage.sqlite.graphs import SqliteGraphs
from stepgraph_server.storage.sqlite.group import GroupWriter
from stepgraph_server.storage.sqlite.interrupts import SqliteInterrupts
from stepgraph_server.storage.sqlite.journal import SqliteJournal
from stepgraph_server.storage.sqlite.readers import Readers
from stepgraph_server.storage.sqlite.requests import SqliteRequests
from stepgraph_server.storage.sqlite.runs import SqliteRuns
from stepgraph_server.storage.sqlite.store import SqliteStore
from stepgraph_server.storage.sqlite.values import SqliteValues
from stepgraph_server.storage.sqlite.writer import Writer, _Stop

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulation.disk import DiskFaults
    from tests.simulation.loop import Process

_READ_ALL = """
    SELECT runs.run_id, journal.batch FROM journal JOIN runs ON runs.run_key = journal.run_key
    ORDER BY journal.position
"""


def _full() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


def _broken() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return error


class FaultyConnection:
    """A connection whose commits fail in every way that SQLite's can."""

    def __init__(self, connection: sqlite3.Connection, disk: DiskFaults) -> None:
        self._connection = connection
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *args: Any) -> Any:
        if statement == "COMMIT":
            return self._commit()
        if statement == "BEGIN IMMEDIATE" and self._disk.is_full():
            raise _full()
        return self._connection.execute(statement, *args)

    def _commit(self) -> Any:
        self._disk.may_die("within")
        dice = self._disk.faults.strikes("disk.unknown")
        how = "" if dice is None else dice.choice(("before", "undone", "after"))
        if how == "undone":
            self._connection.execute("ROLLBACK")
        elif how != "before":
            self._connection.execute("COMMIT")
        if how:
            raise _broken()


class LoopWriter(Writer):
    """The writer, whose thread is the loop."""

    def __init__(self, path: Path, disk: DiskFaults) -> None:
        super().__init__(path)
        self._disk = disk
        self._is_planned = False
        self._connection: Any = None

    def start(self, connection, loop, on_appended) -> None:
        self._loop, self._on_appended = loop, on_appended
        self._connection = FaultyConnection(connection, self._disk)
        self._group_writer = GroupWriter(self._connection, self._path)

    async def stop(self) -> None:
        if self._is_closed or self._loop is None:
            return
        self._is_closed = True
        self._hand_over()
        self._queue.put(_Stop())
        self._work()
        # What it has told the loop is heard before this goes on.
        await asyncio.sleep(0)

    def _hand_over(self) -> None:
        super()._hand_over()
        self._plan()

    def post(self, job) -> None:
        super().post(job)
        self._plan()

    def _report(self, results) -> None:
        super()._report(results)
        self._plan()

    def _plan(self) -> None:
        if self._is_planned or self._queue.empty() or self._is_closed:
            return
        self._is_planned = True
        assert self._disk.process is not None
        self._disk.process.later(self._disk.pause_s(), self._go_on)

    def _go_on(self) -> None:
        self._is_planned = False
        self._work()

    def _work(self) -> None:
        while not self._queue.empty():
            taken = self._take()
            if taken.group:
                self._disk.may_die("before")
                results = self._write(taken.group, self._group_writer)
                self._disk.ledger.committed(results)
                self._disk.may_die("after")
                self._tell(self._report, results)
            for job in taken.jobs:
                self._do(job, self._connection)
            if taken.heard is not None:
                self._group_writer.forgive(taken.heard)


class LoopReaders(Readers):
    """Readers on the loop: others have their turn before each read."""

    def __init__(self, path: Path, disk: DiskFaults) -> None:
        super().__init__(path)
        self._disk = disk

    async def run(self, read):
        await asyncio.sleep(0)
        if self._disk.is_unreadable():
            raise unavailable(self._path, _broken())
        return await super().run(read)


class SqliteDisk(SqliteStore):
    """A store in a file, as one server uses it."""

    def __init__(self, path: Path, disk: DiskFaults) -> None:
        super().__init__(path)
        self._disk = disk
        self._writer = LoopWriter(path, disk)
        self._readers = LoopReaders(path, disk)
        self.commits = self._writer.commits
        self.journal = SqliteJournal(self._writer, self._readers)
        self.runs = SqliteRuns(self._writer, self._readers)
        self.graphs = SqliteGraphs(self._writer, self._readers)
        self.values = SqliteValues(self._writer, self._readers)
        self.requests = SqliteRequests(self._writer, self._readers)
        self.interrupts = SqliteInterrupts(self._readers)

    def begin(self, process: Process) -> None:
        """Belong to a server from now on."""
        self._disk.process = process

    def read_back(self) -> dict[str, list[event_pb2.RunEvent]]:
        """Return what is stored, by run, as whoever opens the file next will find it."""
        found: dict[str, list[event_pb2.RunEvent]] = {}
        with closing(sqlite3.connect(self._path)) as connection:
            with suppress(sqlite3.OperationalError):  # it was killed before there was a schema
                for run_id, batch in connection.execute(_READ_ALL):
                    events = event_pb2.EventBatch.FromString(batch).events
                    found.setdefault(run_id, []).extend(events)
            (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
            assert verdict == "ok", verdict
        return found

    def drop(self) -> None:
        """Lose what the process that was killed had open."""
        if self._connection is not None:
            self._connection.close()
        while self._readers._connections:
            self._readers._connections.pop().close()
        self._lock.release()


__all__ = ["SqliteDisk"]
