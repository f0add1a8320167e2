"""What tests of stores are made of: appends of runs, and a store that remembers what it reported."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2
from stepgraph_server.core.instants import Instant
from stepgraph_server.storage.records import (
    Append,
    Appended,
    QuestionRow,
    RequestRecord,
    RunCreation,
    RunEnding,
    RunKey,
    RunProgress,
)

if TYPE_CHECKING:
    from stepgraph_server.storage.store import Store

RUNNING, SUSPENDED, COMPLETED, FAILED = 2, 3, 6, 7
OPEN, ANSWERED = 1, 2


def key(run_id: str = "r1", namespace: str = "default") -> RunKey:
    return RunKey(namespace, run_id)


def creation(run_id: str = "r1", **fields: object) -> RunCreation:
    values: dict[str, object] = {
        "graph_digest": "sha256:aa",
        "graph_name": "g",
        "graph_version": 1,
        "create_time": Instant(1_000),
        "root_run_id": run_id,
    }
    return RunCreation(**(values | fields))


def batch(first: int, last: int) -> bytes:
    events = [event_pb2.RunEvent(sequence=number) for number in range(first, last + 1)]
    return event_pb2.EventBatch(events=events).SerializeToString()


def append(first: int, last: int | None = None, **fields: object) -> Append:
    """Make an append; the first of a run creates it."""
    last = first if last is None else last
    run = fields.get("key", key())
    values: dict[str, object] = {
        "key": run,
        "first_sequence": first,
        "last_sequence": last,
        "batch": batch(first, last),
        "progress": RunProgress(status=RUNNING, last_sequence=last),
        "creation": creation(run.run_id) if first == 1 else None,
    }
    return Append(**(values | fields))


def ending(time: int = 9_000, **fields: object) -> RunEnding:
    return RunEnding(**({"end_time": Instant(time), "result": b""} | fields))


def request(request_id: str = "q1", **fields: object) -> RequestRecord:
    values: dict[str, object] = {
        "method": "StartRun",
        "request_id": request_id,
        "fingerprint": "f1",
        "response": b"first",
        "create_time": Instant(1_000),
    }
    return RequestRecord(**(values | fields))


def question(interrupt_id: str = "i1", **fields: object) -> QuestionRow:
    values: dict[str, object] = {
        "interrupt_id": interrupt_id,
        "status": OPEN,
        "open_time": Instant(2_000),
        "question": interrupt_id.encode(),
    }
    return QuestionRow(**(values | fields))


class Bench:
    """A started store, with what it reported."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.groups: list[list[Appended]] = []
        self.reported: list[Appended] = []
        self._changed = asyncio.Event()

    async def start(self) -> Bench:
        await self.store.start(self._on_appended)
        return self

    def _on_appended(self, results: list[Appended]) -> None:
        self.groups.append(results)
        self.reported += results
        self._changed.set()

    async def submit(self, *appends: Append) -> list[Appended]:
        """Submit together, and return what became of them."""
        expected = len(self.reported) + len(appends)
        for one in appends:
            self.store.journal.submit(one)
        await self.until(expected)
        return self.reported[expected - len(appends) :]

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.reported) < count:
                self._changed.clear()
                await self._changed.wait()


def errors(results: list[Appended]) -> list[str | None]:
    """Return the names of the errors, None where there was none."""
    return [result.error and type(result.error).__name__ for result in results]
