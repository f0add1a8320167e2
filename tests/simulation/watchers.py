"""Watchers: they read slowly, go away and come back, and must get every durable event exactly once, in order."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from stepgraph.v1 import run_service_pb2
from stepgraph_server.core.errors import Quarantined, Refused
from stepgraph_server.storage.errors import JournalUnavailable
from stepgraph_server.storage.runs import RunQuery
from tests.simulation.ledger import FINAL
from tests.simulation.network import ConnectionLost
from tests.simulation.server import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from stepgraph_server.app import Parts
    from tests.simulation.world import World


class Watcher(ABC):
    """What both kinds have in common: to come back."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.is_done = False
        self._dice = world.dice(f"watcher {name}")
        #: The last event that was got, by run.
        self.got: dict[str, int] = {}

    async def watch(self) -> None:
        """Watch to the end, over all that breaks."""
        while not self.is_done:
            server = self.world.server
            try:
                if server is not None and server.is_up:
                    await server.watch(self._make, self._take)
                    self._ended()
            except (ConnectionLost, JournalUnavailable):
                pass
            except Quarantined as error:
                self.world.trouble(f"{self.name}: {error}")
                return
            except Refused as refused:
                if refused.reason not in ("RUN_NOT_FOUND", "SHUTTING_DOWN"):
                    self.world.trouble(f"{self.name}: {refused.reason} {refused}")
            await asyncio.sleep(self._dice.uniform(0.05, 1.5))

    @abstractmethod
    def _make(self, parts: Parts) -> AsyncGenerator[Any, None]:
        """Open a watch where the last one broke off."""

    @abstractmethod
    def _ended(self) -> None:
        """Judge that the server ended the watch."""

    @abstractmethod
    async def _take(self, item: Any) -> None:
        """Take what came, and check it."""

    async def _linger(self) -> None:
        strikes = self.world.faults.strikes
        if (dice := strikes("watch.slow")) is not None:
            await asyncio.sleep(dice.choice((0.5, 5.0, 20.0)))
        if strikes("watch.leaves") is not None:
            raise ConnectionLost

    def _take_batch(self, data: bytes) -> None:
        batch = run_service_pb2.WatchBatch.FromString(data)
        run_id = batch.run_id
        book = self.world.ledger.book(run_id)
        for event in batch.events:
            self.world.count("watched events")
            before = self.got.get(run_id, 0)
            if event.sequence != before + 1:
                self._wrong(f"event {event.sequence} of {run_id} after event {before}")
            if event.sequence > book.last:
                self._wrong(f"event {event.sequence} of {run_id} before it was durable")
            elif not self._is_same(event, book.events[event.sequence - 1]):
                self._wrong(f"event {event.sequence} of {run_id} is not the durable one")
            self.got[run_id] = event.sequence

    def _is_same(self, event: Any, durable: Any) -> bool:
        return event == durable

    def _wrong(self, what: str) -> None:
        self.world.trouble(f"{self.name} got {what}")


class RunWatcher(Watcher):
    """Watches one run to its terminal event."""

    def __init__(self, world: World, run_id: str, *, summary: bool) -> None:
        super().__init__(world, f"watcher of {run_id}{' in short' if summary else ''}")
        self._run_id = run_id
        self._summary = summary

    def _make(self, parts: Parts) -> AsyncGenerator[Any, None]:
        return parts.watcher.watch_run(
            *(NAMESPACE, self._run_id, self.got.get(self._run_id, 0)),
            summary=self._summary,
            history_only=False,
        )

    def _is_same(self, event: Any, durable: Any) -> bool:
        if self._summary:
            return event.WhichOneof("kind") == durable.WhichOneof("kind")
        return event == durable

    async def _take(self, item: Any) -> None:
        for data in item:
            self._take_batch(data)
        await self._linger()

    def _ended(self) -> None:
        book = self.world.ledger.book(self._run_id)
        last = self.got.get(self._run_id, 0)
        if (
            not book.is_final
            or last != book.last
            or book.events[-1].WhichOneof("kind") not in FINAL
        ):
            self._wrong(f"an end after event {last} of {book.last}")
        self.is_done = True


class AllWatcher(Watcher):
    """Watches all runs, from before the first one."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "watcher of all")
        self._resume: int | None = None

    def _make(self, parts: Parts) -> AsyncGenerator[Any, None]:
        return parts.watcher.watch_runs(NAMESPACE, RunQuery(), self._resume, summary=False)

    async def _take(self, item: Any) -> None:
        batches, resume = item
        if self._resume is None:
            # From now: what there is already counts as given.
            self.got = {run_id: book.last for run_id, book in self.world.ledger.books.items()}
        for data in batches:
            self._take_batch(data)
        self._resume = resume
        await self._linger()

    def _ended(self) -> None:
        self._wrong("an end")

    def has_all(self) -> bool:
        """Whether it has got everything."""
        return all(
            self.got.get(name, 0) == book.last for name, book in self.world.ledger.books.items()
        )


__all__ = ["AllWatcher", "RunWatcher"]
