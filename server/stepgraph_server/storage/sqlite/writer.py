"""The one thread that writes.

Rules: everything that changes the file goes through this thread's queue, so that nobody ever waits for SQLite's write lock.
What waits is taken together: appends become one transaction, then each job has one of its own. The loop is woken once
per group. The queue is unbounded on purpose: what a run has begun must be written, and new work is refused long before
(`Backlog.is_full`).
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from stepgraph_server.storage.errors import JournalUnavailable
from stepgraph_server.storage.journal import Backlog
from stepgraph_server.storage.records import Append, Appended
from stepgraph_server.storage.sqlite.connection import unavailable
from stepgraph_server.storage.sqlite.group import GroupWriter
from stepgraph_server.telemetry import names
from stepgraph_server.telemetry.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stepgraph_server.storage.store import OnAppended

T = TypeVar("T")

GROUP_APPENDS: Final = 1_024
"""The most appends in one commit: tens of milliseconds, and the first of them waits for the last."""

GROUP_BYTES: Final = 16 * 1024 * 1024
"""And the most bytes of batches, after which the group is closed."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Job(Generic[T]):
    """Something else to do with the connection, in a transaction of its own."""

    work: Callable[[sqlite3.Connection], T]
    done: asyncio.Future[T] | None = None
    """None: nobody waits for it."""


class _Stop:
    """The last thing in the queue."""


@dataclass(slots=True)
class _Taken:
    """What was waiting: the appends come first, then the jobs, then the failure that the caller has heard of."""

    group: list[Append] = field(default_factory=list)
    jobs: list[Job[object]] = field(default_factory=list)
    heard: Appended | None = None
    is_last: bool = False


_Item: TypeAlias = "Append | Appended | Job[object] | _Stop"
"""An Appended in the queue means that the caller has heard of that failure."""


class Writer:
    """Takes appends and jobs from the loop, and reports appends to it.

    Call `start` and `stop` on the loop, once each. In between nobody else may use the connection.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: SimpleQueue[_Item] = SimpleQueue()
        #: Submitted in this turn of the loop, and not in the queue yet.
        self._submitted: list[Append] = []
        self._waiting_appends = 0
        self._waiting_bytes = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_appended: OnAppended | None = None
        self._group_writer: GroupWriter | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        #: How long commits took.
        self.commits = Histogram()

    def start(
        self,
        connection: sqlite3.Connection,
        loop: asyncio.AbstractEventLoop,
        on_appended: OnAppended,
    ) -> None:
        """Begin to write."""
        self._loop = loop
        self._on_appended = on_appended
        self._group_writer = GroupWriter(connection, self._path)
        # A daemon: a server that ends by a fault must be able to end. What was not reported was not promised, and what
        # SQLite was in the middle of is undone when the file is opened again.
        self._thread = threading.Thread(
            target=self._run,
            args=(connection, self._group_writer),
            name="stepgraph-writer",
            daemon=True,
        )
        self._thread.start()

    async def stop(self) -> None:
        """Write all that was submitted and report it, then end the thread."""
        if self._thread is None or self._is_closed:
            return
        self._is_closed = True
        self._hand_over()
        self._queue.put(_Stop())
        # The reports were given to the loop before the thread ended, so they have run when this goes on.
        await asyncio.to_thread(self._thread.join)

    def submit(self, append: Append) -> None:
        """See Journal."""
        assert self._loop is not None, "a store is started before it is used"
        self._waiting_appends += 1
        self._waiting_bytes += len(append.batch)
        if self._is_closed:
            refused = Appended(append=append, position=0, error=self._closed())
            self._loop.call_soon(self._report, [refused])
            return
        if not self._submitted:
            # The thread would wake up at the first append of a frame and ask for the interpreter's lock in the middle of
            # it, to write half of what the frame leads to in a transaction of its own. With this and `_at_once`, 64 runs
            # whose appends cost the loop 200 us each (benchmarks.journal) have 64 instead of 32 appends in a commit, and
            # each is durable after 8.1 ms instead of 11.6. Waiting longer, for stragglers or for a frame that has arrived,
            # made groups of 36 instead of 28 in benchmarks.react, and saved no CPU: the loop was only idle more often.
            self._loop.call_soon(self._hand_over)
        self._submitted.append(append)

    def _hand_over(self) -> None:
        """Put what was submitted into the queue, before anything else that goes there from the loop."""
        for append in self._submitted:
            self._queue.put(append)
        self._submitted.clear()

    def backlog(self) -> Backlog:
        """See Journal."""
        return Backlog(self._waiting_appends, self._waiting_bytes)

    def head_position(self) -> int:
        """See Journal."""
        return self._group_writer.head_position if self._group_writer else 0

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something in a transaction of its own, and return when it is durable.

        Raises:
            JournalUnavailable: It could not be done; nothing of it is stored.
        """
        if self._loop is None or self._is_closed:
            raise self._closed()
        done: asyncio.Future[T] = self._loop.create_future()
        self._hand_over()
        self.post(Job(work, done))
        return await done

    def post(self, job: Job[T]) -> None:
        """Do something when there is time; from any thread. Once the store is closing it may never be done."""
        # A queue of jobs of all types: what a job returns goes to its own future, of the same type.
        self._queue.put(job)  # type: ignore[arg-type]

    def _closed(self) -> JournalUnavailable:
        return JournalUnavailable(str(self._path), "the store is closed", "Start the server again")

    def _report(self, results: list[Appended]) -> None:
        """Tell the caller; on the loop."""
        assert self._on_appended is not None
        for result in results:
            self._waiting_appends -= 1
            self._waiting_bytes -= len(result.append.batch)
            # Before the call: what is submitted while the caller hears of the failure is not built on it any more.
            if result.error is not None:
                self._hand_over()
                self._queue.put(result)
        self._on_appended(results)

    # Everything below runs in the thread.

    def _run(self, connection: sqlite3.Connection, group_writer: GroupWriter) -> None:
        is_last = False
        while not is_last:
            taken = self._take()
            is_last = taken.is_last
            if taken.group:
                self._tell(self._report, self._write(taken.group, group_writer))
            for job in taken.jobs:
                self._do(job, connection)
            if taken.heard is not None:
                group_writer.forgive(taken.heard)

    def _take(self) -> _Taken:
        """Wait for something, and take with it all that is there, up to the size of a group."""
        taken = _Taken()
        group_bytes = 0
        item = self._queue.get()
        for remaining in range(self._queue.qsize(), -1, -1):
            match item:
                case Append():
                    taken.group.append(item)
                    group_bytes += len(item.batch)
                case Job():
                    taken.jobs.append(item)
                case Appended():
                    # Counts for what comes behind it, and not for what is in this group already.
                    taken.heard = item
                    break
                case _Stop():
                    taken.is_last = True
                    break
            if remaining == 0 or len(taken.group) >= GROUP_APPENDS or group_bytes >= GROUP_BYTES:
                break
            # Nobody else takes from the queue, so what it held a moment ago is still there.
            item = self._queue.get_nowait()
        return taken

    def _write(self, group: list[Append], group_writer: GroupWriter) -> list[Appended]:
        began = time.perf_counter()
        try:
            written = group_writer.write(group)
        except Exception as error:  # noqa: BLE001 the thread must live on
            # A fault of ours, and the callers must hear of it: they wait for nothing else.
            _log.exception("A fault of ours while writing", extra={"action": names.JOURNAL_FAULT})
            return group_writer.fail(group, unavailable(self._path, error))
        self.commits.observe(time.perf_counter() - began)
        return written

    def _do(self, job: Job[object], connection: sqlite3.Connection) -> None:
        try:
            connection.execute("BEGIN IMMEDIATE")
            result = job.work(connection)
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 it is raised where the job came from
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            failure = unavailable(self._path, error) if isinstance(error, sqlite3.Error) else error
            if job.done is not None:
                self._tell(_fail, job.done, failure)
        else:
            if job.done is not None:
                self._tell(_resolve, job.done, result)

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            # The loop was closed without the store: nobody is left to hear.
            self._is_closed = True


def _resolve(done: asyncio.Future[object], result: object) -> None:
    if not done.cancelled():
        done.set_result(result)


def _fail(done: asyncio.Future[object], error: Exception) -> None:
    if not done.cancelled():
        done.set_exception(error)
