"""A store that does what disks do: it fails, is slow, and commits runs in another order than they came."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2
from stepgraph_server.storage.errors import AppendSkipped, JournalUnavailable
from stepgraph_server.storage.memory import MemoryJournal, MemoryRuns, MemoryStore
from stepgraph_server.storage.records import RunKey

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from stepgraph_server.storage.errors import StorageError
    from stepgraph_server.storage.records import Append, RunRecord, StoredBatch

    Fault = Callable[[Append], StorageError | None]


class FaultyRuns(MemoryRuns):
    """Rows that can't be read for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.unreadable = False
        #: Marks of quarantined runs can't be written.
        self.unmarkable = False

    async def get(self, key: RunKey) -> RunRecord | None:
        self.reads += 1
        if self.unreadable:
            raise unavailable()
        return await super().get(key)

    async def set_quarantined(self, key: RunKey) -> None:
        if self.unmarkable:
            raise unavailable()
        await super().set_quarantined(key)


class FaultyJournal(MemoryJournal):
    """A journal that commits when and what it is told to."""

    #: Nothing is committed until `release`.
    holding = False
    #: What is appended fails with what one of these returns.
    faults: list[Fault]
    #: With one, commits are parts of what waits, and runs change places in them; appends of one run never do.
    chance: random.Random | None = None
    #: Commits so far, and appends submitted.
    commits = 0
    submitted = 0

    def submit(self, append: Append) -> None:
        self.submitted += 1
        super().submit(append)

    def hold(self) -> None:
        """Commit nothing for now."""
        self.holding = True

    def release(self) -> None:
        """Commit what waits."""
        self.holding = False
        self._commit()

    def crash(self) -> None:
        """Lose what is not committed, and tell nobody."""
        self._waiting, self._waiting_bytes = [], 0
        self._is_open = self.holding = False

    async def read(self, key: RunKey, after_sequence: int, max_bytes: int) -> list[StoredBatch]:
        # As with a disk, others have their turn in the meantime.
        await asyncio.sleep(0)
        return await super().read(key, after_sequence, max_bytes)

    def _commit(self) -> None:
        if self.holding or not self._waiting:
            return
        self.commits += 1
        later = self._split() if self.chance is not None else []
        doubted = {append.key for append in self._waiting} & {append.key for append in later}
        before = {key: self._last(key) for key in doubted}
        group = list(self._waiting)
        super()._commit()
        if later:
            # What was built on something that failed fails with it, also in a later commit.
            for key in doubted:
                expected = [append.last_sequence for append in group if append.key == key][-1]
                if self._last(key) != expected and before[key] != expected:
                    self._skipped.update(id(append) for append in later if append.key == key)
            self._waiting = later + self._waiting
            assert self._loop is not None
            self._loop.call_soon(self._commit)

    def _last(self, key: RunKey) -> int:
        run = self._runs.by_key.get(key)
        return run.record.progress.last_sequence if run else 0

    def _split(self) -> list[Append]:
        """Leave a part of what waits, mixed between runs, and return the rest."""
        assert self.chance is not None
        by_run: dict[RunKey, list[Append]] = {}
        for append in self._waiting:
            by_run.setdefault(append.key, []).append(append)
        mixed: list[Append] = []
        while by_run:
            key = self.chance.choice(list(by_run))
            mixed.append(by_run[key].pop(0))
            if not by_run[key]:
                del by_run[key]
        cut = self.chance.randint(1, len(mixed))
        self._waiting = mixed[:cut]
        return mixed[cut:]

    def _refusal(self, append: Append) -> StorageError | None:
        if id(append) in self._skipped:
            self._skipped.discard(id(append))
            return AppendSkipped(append.key)
        for fault in self.faults:
            error = fault(append)
            if error is not None:
                return error
        return super()._refusal(append)

    _skipped: set[int]


class FaultyStore(MemoryStore):
    """A store in memory with a journal that can fail."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: FaultyRuns = FaultyRuns()
        self.journal: FaultyJournal = FaultyJournal(self.runs, self.requests, self.interrupts)
        self.journal.faults = []
        self.journal._skipped = set()

    def events(self, run_id: str, namespace: str = "default") -> list[event_pb2.RunEvent]:
        """Return what is durable of a run."""
        run = self.runs.by_key.get(RunKey(namespace, run_id))
        if run is None:
            return []
        return [
            event
            for stored in run.batches
            for event in event_pb2.EventBatch.FromString(stored.batch).events
        ]

    def kinds(self, run_id: str) -> list[str]:
        """Return the kinds of the events of a run, in order."""
        return [event.WhichOneof("kind") or "" for event in self.events(run_id)]

    def fail_next(self, kind: str, error: StorageError | None = None, times: int = 1) -> None:
        """Let the next appends fail that hold an event of a kind; "" is any."""
        left = [times]

        def fault(append: Append) -> StorageError | None:
            events = event_pb2.EventBatch.FromString(append.batch).events
            if left[0] and (not kind or any(event.WhichOneof("kind") == kind for event in events)):
                left[0] -= 1
                return error or unavailable()
            return None

        self.journal.faults.append(fault)

    def corrupt(self, run_id: str) -> None:
        """Destroy the last batch of a run."""
        self.runs.by_key[RunKey("default", run_id)].batches[-1].batch = b"\xff\xff"


def unavailable() -> JournalUnavailable:
    """Return what a full disk gives."""
    return JournalUnavailable("the disk", "it is full", "Make room")
