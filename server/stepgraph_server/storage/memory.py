"""A store in the memory of the process: for tests and for trying things out. Nothing survives the process.

Rules: it keeps every contract of the ports but durability, and it commits in groups like the real one, so that a caller that
works with it has met everything but the disk. All of it runs on the loop.
"""

from __future__ import annotations

import asyncio
import bisect
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from stepgraph.v1 import interrupt_pb2, value_pb2
from stepgraph_server.storage.admission import prefix_missing, refusal
from stepgraph_server.storage.errors import (
    AppendInvalid,
    AppendSkipped,
    JournalUnavailable,
    StorageError,
)
from stepgraph_server.storage.journal import Backlog
from stepgraph_server.storage.records import (
    Append,
    Appended,
    GraphVersionRecord,
    OpenRun,
    QuestionRow,
    RequestRecord,
    RunKey,
    RunRecord,
    StoredBatch,
)
from stepgraph_server.storage.values import MAX_VALUE_BYTES, ContentBuffer

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterable

    from stepgraph_server.core.instants import Instant
    from stepgraph_server.storage.graphs import GraphReference
    from stepgraph_server.storage.runs import RunQuery
    from stepgraph_server.storage.store import OnAppended

_WHERE = "the store in memory"


@dataclass(slots=True, kw_only=True)
class _Run:
    """A run with its batches. `rowid` is its place in the order of creation."""

    rowid: int
    record: RunRecord
    batches: list[StoredBatch]


class MemoryStore:
    """A `Store` without a disk. It may be started again after `close`, and has everything then."""

    def __init__(self) -> None:
        self.runs = MemoryRuns()
        self.graphs = MemoryGraphs()
        self.values = MemoryValues()
        self.requests = MemoryRequests()
        self.interrupts = MemoryInterrupts()
        self.journal = MemoryJournal(self.runs, self.requests, self.interrupts)

    async def start(self, on_appended: OnAppended) -> None:
        """See Store."""
        self.journal.start(asyncio.get_running_loop(), on_appended)

    async def close(self) -> None:
        """See Store."""
        self.journal.stop()

    async def check_writable(self) -> None:
        """See Store."""
        self.journal.check_writable()


class MemoryJournal:
    """See Journal. What is submitted in one turn of the loop is one commit, reported in the next turn."""

    def __init__(
        self, runs: MemoryRuns, requests: MemoryRequests, interrupts: MemoryInterrupts
    ) -> None:
        self._runs = runs
        self._requests = requests
        self._interrupts = interrupts
        self._log: list[tuple[RunKey, StoredBatch]] = []
        self._waiting: list[Append] = []
        self._waiting_bytes = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_appended: OnAppended | None = None
        self._is_open = False
        self.unavailable_because = ""
        """Set it, and nothing can be written, for this reason; for tests of those who call."""

    def start(self, loop: asyncio.AbstractEventLoop, on_appended: OnAppended) -> None:
        """Begin to take appends."""
        assert not self._is_open, "a store is started once"
        self._loop = loop
        self._on_appended = on_appended
        self._is_open = True

    def stop(self) -> None:
        """Commit what waits, and take no more. What is submitted from now on is refused."""
        self._commit()
        self._is_open = False

    def check_writable(self) -> None:
        """Raise JournalUnavailable if nothing can be written."""
        if not self._is_open or self.unavailable_because:
            raise self._unavailable()

    def submit(self, append: Append) -> None:
        """See Journal."""
        assert self._loop is not None, "a store is started before it is used"
        self._waiting.append(append)
        self._waiting_bytes += len(append.batch)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._commit)

    def backlog(self) -> Backlog:
        """See Journal."""
        return Backlog(len(self._waiting), self._waiting_bytes)

    def head_position(self) -> int:
        """See Journal."""
        return len(self._log)

    async def read(self, key: RunKey, after_sequence: int, max_bytes: int) -> list[StoredBatch]:
        """See Journal."""
        run = self._runs.by_key.get(key)
        if run is None:
            return []
        start = bisect.bisect_right(
            run.batches, after_sequence, key=lambda batch: batch.last_sequence
        )
        return _within(islice(run.batches, start, None), max_bytes)

    async def read_positions(
        self, namespace: str, after_position: int, max_bytes: int
    ) -> list[tuple[RunKey, StoredBatch]]:
        """See Journal."""
        found: list[tuple[RunKey, StoredBatch]] = []
        total = 0
        # A position is the place in the log, counted from 1.
        for key, batch in islice(self._log, after_position, None):
            if key.namespace != namespace:
                continue
            total += len(batch.batch)
            if found and total > max_bytes:
                break
            found.append((key, batch))
        return found

    def _commit(self) -> None:
        group, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not group:
            return
        if self._is_open and not self.unavailable_because:
            results = self._try_all(group)
        else:
            results = [
                Appended(append=append, position=0, error=self._unavailable()) for append in group
            ]
        assert self._on_appended is not None, "a store is started before it is used"
        self._on_appended(results)

    def _try_all(self, group: list[Append]) -> list[Appended]:
        results = []
        failed: set[RunKey] = set()
        for append in group:
            error = AppendSkipped(append.key) if append.key in failed else self._refusal(append)
            if error is None:
                error = self._copy_prefix(append)
            if error is None:
                self._apply(append)
            else:
                failed.add(append.key)
            position = 0 if error else len(self._log)
            results.append(Appended(append=append, position=position, error=error))
        return results

    def _refusal(self, append: Append) -> StorageError | None:
        run = self._runs.by_key.get(append.key)
        last_sequence = run.record.progress.last_sequence if run else 0
        used = None
        if append.request:
            used = self._requests.find(
                append.key.namespace, append.request.method, append.request.request_id
            )
        return refusal(append, last_sequence, used)

    def _copy_prefix(self, append: Append) -> StorageError | None:
        prefix = append.prefix
        if prefix is None:
            return None
        source = self._runs.by_key.get(prefix.source)
        copied = [
            batch
            for batch in (source.batches if source else [])
            if batch.last_sequence <= prefix.last_sequence
        ]
        if not copied or copied[-1].last_sequence != prefix.last_sequence:
            return AppendInvalid(append.key, prefix_missing(prefix))
        for batch in copied:
            again = replace(batch, position=len(self._log) + 1)
            self._log.append((append.key, again))
            self._runs.begin(append, again)
        return None

    def _apply(self, append: Append) -> None:
        batch = StoredBatch(
            first_sequence=append.first_sequence,
            last_sequence=append.last_sequence,
            position=len(self._log) + 1,
            batch=append.batch,
        )
        self._log.append((append.key, batch))
        record = self._runs.apply(append, batch)
        if append.request:
            self._requests.keep(append.key.namespace, append.request)
        for row in append.questions:
            self._interrupts.keep(record, row)

    def _unavailable(self) -> JournalUnavailable:
        reason = self.unavailable_because or "it is closed"
        return JournalUnavailable(_WHERE, reason, "Start it again")


class MemoryRuns:
    """See Runs. `by_key` is in the order of creation."""

    def __init__(self) -> None:
        self.by_key: dict[RunKey, _Run] = {}

    def begin(self, append: Append, batch: StoredBatch) -> _Run:
        """Take a batch over into the run of an append, which is created if it is not there; return the run."""
        run = self.by_key.get(append.key)
        if run is None:
            assert append.creation is not None, "admission lets only a first append create"
            record = RunRecord(key=append.key, creation=append.creation, progress=append.progress)
            run = _Run(rowid=len(self.by_key) + 1, record=record, batches=[])
            self.by_key[append.key] = run
        run.batches.append(batch)
        return run

    def apply(self, append: Append, batch: StoredBatch) -> RunRecord:
        """Take an append over into the rows, and return the row."""
        run = self.begin(append, batch)
        # A new record: whoever read the old one keeps what it was.
        ending = append.ending or run.record.ending
        run.record = replace(run.record, progress=append.progress, ending=ending)
        return run.record

    async def get(self, key: RunKey) -> RunRecord | None:
        """See Runs."""
        run = self.by_key.get(key)
        return run.record if run else None

    async def open_runs(self, after_rowid: int, limit: int) -> list[OpenRun]:
        """See Runs."""
        ended = {
            RunKey(key.namespace, run.record.creation.parent_run_id)
            for key, run in self.by_key.items()
            if run.record.is_final
        }
        found = (
            OpenRun(
                rowid=run.rowid,
                key=key,
                status=run.record.progress.status,
                next_due=run.record.progress.next_due,
                has_ended_child=key in ended,
            )
            for key, run in islice(self.by_key.items(), after_rowid, None)
            if run.record.ending is None and not run.record.quarantined
        )
        return [*islice(found, limit)]

    async def count_tree(self, root: RunKey) -> int:
        """See Runs."""
        return sum(
            key.namespace == root.namespace and run.record.creation.root_run_id == root.run_id
            for key, run in self.by_key.items()
        )

    async def set_quarantined(self, key: RunKey) -> None:
        """See Runs."""
        run = self.by_key.get(key)
        if run is not None:
            run.record = replace(run.record, quarantined=True)

    async def list(self, namespace: str, query: RunQuery) -> list[RunRecord]:
        """See Runs."""
        found = [
            run.record
            for key, run in self.by_key.items()
            if key.namespace == namespace
            and query.matches(run.record)
            and (query.after is None or _newest_first(run.record) < query.after)
        ]
        found.sort(key=_newest_first, reverse=True)
        return found[: query.limit]


class MemoryGraphs:
    """See Graphs. Versions of a name stand in order, from 1; the unnamed ones are by digest."""

    def __init__(self) -> None:
        self._named: dict[tuple[str, str], list[GraphVersionRecord]] = {}
        self._unnamed: dict[tuple[str, str], GraphVersionRecord] = {}

    async def put(
        self, namespace: str, name: str, digest: str, definition: bytes, create_time: Instant
    ) -> tuple[GraphVersionRecord, bool]:
        """See Graphs."""
        versions = self._named.get((namespace, name), []) if name else []
        found = next((version for version in versions if version.digest == digest), None)
        if not name:
            found = self._unnamed.get((namespace, digest))
        if found is not None:
            return found, False
        record = GraphVersionRecord(
            name=name,
            version=len(versions) + 1 if name else 0,
            digest=digest,
            create_time=create_time,
            definition=definition,
        )
        if name:
            self._named.setdefault((namespace, name), []).append(record)
        else:
            self._unnamed[namespace, digest] = record
        return record, True

    async def get(self, namespace: str, reference: GraphReference) -> GraphVersionRecord | None:
        """See Graphs."""
        if reference.name:
            versions = self._named.get((namespace, reference.name), [])
            place = reference.version or len(versions)
            return versions[place - 1] if 1 <= place <= len(versions) else None
        named = [
            version
            for (where, _), versions in self._named.items()
            if where == namespace
            for version in versions
            if version.digest == reference.digest
        ]
        if named:
            return min(named, key=lambda record: (record.create_time, record.name))
        return self._unnamed.get((namespace, reference.digest))

    async def list_names(
        self, namespace: str, after_name: str, limit: int
    ) -> list[GraphVersionRecord]:
        """See Graphs."""
        names = sorted(
            name for where, name in self._named if where == namespace and name > after_name
        )
        return [replace(self._named[namespace, name][-1], definition=b"") for name in names[:limit]]

    async def list_versions(
        self, namespace: str, name: str, before_version: int | None, limit: int
    ) -> list[GraphVersionRecord]:
        """See Graphs."""
        versions = self._named.get((namespace, name), [])
        end = len(versions) if before_version is None else before_version - 1
        return [replace(record, definition=b"") for record in reversed(versions[:end])][:limit]


class MemoryValues:
    """See Values."""

    def __init__(self) -> None:
        self._contents: dict[tuple[str, str], tuple[value_pb2.StoredValue, bytes]] = {}

    async def put(
        self,
        namespace: str,
        expected: value_pb2.StoredValue,
        chunks: AsyncIterable[bytes],
        *,
        create_time: Instant,
        max_bytes: int = MAX_VALUE_BYTES,
    ) -> value_pb2.StoredValue:
        """See Values. Nothing here expires, so `create_time` is not kept."""
        del create_time
        buffer = ContentBuffer(expected, max_bytes)
        content = bytearray()
        async for piece in chunks:
            for chunk in buffer.add(piece):
                content += chunk
        content += buffer.rest()
        value = buffer.finish()
        self._contents.setdefault((namespace, value.digest), (value, bytes(content)))
        return value

    async def stat(self, namespace: str, digest: str) -> value_pb2.StoredValue | None:
        """See Values."""
        found = self._contents.get((namespace, digest))
        return found[0] if found else None

    async def read(self, namespace: str, digest: str, offset: int, max_bytes: int) -> bytes | None:
        """See Values."""
        found = self._contents.get((namespace, digest))
        return found[1][offset : offset + max_bytes] if found else None


class MemoryRequests:
    """See Requests."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str, str], RequestRecord] = {}

    def find(self, namespace: str, method: str, request_id: str) -> RequestRecord | None:
        """Return a record at once."""
        return self._records.get((namespace, method, request_id))

    def keep(self, namespace: str, record: RequestRecord) -> RequestRecord:
        """Store a record unless there is one; return the one that stands."""
        return self._records.setdefault((namespace, record.method, record.request_id), record)

    async def get(self, namespace: str, method: str, request_id: str) -> RequestRecord | None:
        """See Requests."""
        return self.find(namespace, method, request_id)

    async def put(self, namespace: str, record: RequestRecord) -> RequestRecord:
        """See Requests."""
        return self.keep(namespace, record)

    async def forget(self, created_before: Instant, limit: int) -> int:
        """See Requests."""
        old = sorted(
            (record.create_time, place)
            for place, record in self._records.items()
            if record.create_time < created_before
        )
        for _, place in old[:limit]:
            del self._records[place]
        return len(old[:limit])


class MemoryInterrupts:
    """See Interrupts."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], tuple[QuestionRow, RunRecord]] = {}

    def keep(self, run: RunRecord, row: QuestionRow) -> None:
        """Store a question of a run, in place of an earlier one with its id."""
        self._rows[run.key.namespace, row.interrupt_id] = (row, run)

    async def get(self, namespace: str, interrupt_id: str) -> tuple[QuestionRow, RunKey] | None:
        """See Interrupts."""
        found = self._rows.get((namespace, interrupt_id))
        return (found[0], found[1].key) if found else None

    async def get_by_token(
        self, namespace: str, external_token: str
    ) -> tuple[QuestionRow, RunKey] | None:
        """See Interrupts."""
        found = [
            (row, run.key)
            for row, run in self._rows.values()
            if external_token
            and run.key.namespace == namespace
            and row.external_token == external_token
        ]
        return max(found, key=lambda pair: _open_and_newest(pair[0]), default=None)

    async def list(
        self,
        namespace: str,
        run_id: str | None,
        root_run_id: str | None,
        status: int,
        after: tuple[Instant, str] | None,
        limit: int,
    ) -> list[tuple[QuestionRow, RunKey]]:
        """See Interrupts."""
        found = [
            (row, run.key)
            for row, run in self._rows.values()
            if run.key.namespace == namespace
            and run_id in {None, run.key.run_id}
            and root_run_id in {None, run.creation.root_run_id}
            and status in {0, row.status}
            and (after is None or _oldest_first(row) > after)
        ]
        found.sort(key=lambda pair: _oldest_first(pair[0]))
        return found[:limit]


def _within(batches: Iterable[StoredBatch], max_bytes: int) -> list[StoredBatch]:
    found: list[StoredBatch] = []
    total = 0
    for batch in batches:
        total += len(batch.batch)
        if found and total > max_bytes:
            break
        found.append(batch)
    return found


def _newest_first(run: RunRecord) -> tuple[Instant, str]:
    return run.creation.create_time, run.key.run_id


def _oldest_first(row: QuestionRow) -> tuple[Instant, str]:
    return row.open_time, row.interrupt_id


def _open_and_newest(row: QuestionRow) -> tuple[bool, Instant, str]:
    is_open = row.status == interrupt_pb2.INTERRUPT_STATUS_OPEN
    return is_open, row.open_time, row.interrupt_id
