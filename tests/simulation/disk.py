"""The disk of a simulated server: slow, full, unreadable for a while; and a server may die before or after every write.

Rules: what is committed goes into the ledger in the same moment. A disk outlives the servers that use it.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.support.engine_store import FaultyStore, unavailable

if TYPE_CHECKING:
    from stepgraph.v1 import event_pb2
    from stepgraph_server.storage.records import Appended
    from stepgraph_server.storage.store import OnAppended
    from tests.simulation.chance import Faults
    from tests.simulation.ledger import Ledger
    from tests.simulation.loop import Process, SimulatedLoop


class DiskFaults:
    """What goes wrong with a disk, whichever it is."""

    def __init__(self, loop: SimulatedLoop, faults: Faults, ledger: Ledger) -> None:
        self.loop = loop
        self.faults = faults
        self.ledger = ledger
        self.process: Process | None = None
        self._full_until = 0.0
        self._unreadable_until = 0.0

    def pause_s(self) -> float:
        """Return how long the next commit takes to begin."""
        dice = self.faults.strikes("disk.slow")
        return 0.0 if dice is None else dice.choice((0.02, 0.5, 3.0, 12.0))

    def is_full(self) -> bool:
        """Whether nothing can be written now."""
        dice = self.faults.strikes("disk.full")
        if dice is not None:
            self._full_until = self.loop.time() + dice.choice((0.01, 1.0, 10.0, 40.0))
        return not self.faults.over and self.loop.time() < self._full_until

    def is_unreadable(self) -> bool:
        """Whether nothing can be read now."""
        dice = self.faults.strikes("disk.unreadable")
        if dice is not None:
            self._unreadable_until = self.loop.time() + dice.choice((0.01, 2.0, 15.0))
        return not self.faults.over and self.loop.time() < self._unreadable_until

    def may_die(self, when: str) -> None:
        """Kill the server, perhaps."""
        if self.faults.strikes(f"crash.{when}") is not None and self.process is not None:
            self.process.kill()


class MemoryDisk(FaultyStore):
    """A store in memory on a disk that fails. It commits runs in another order than they came, now and then."""

    def __init__(self, disk: DiskFaults) -> None:
        super().__init__()
        self._disk = disk
        self._is_paused = self._is_closing = False
        self._commit_now = self.journal._commit
        self.journal._commit = self._commit  # type: ignore[method-assign]
        self._read_journal, self._get_row = self.journal.read, self.runs.get
        self.journal.read = self._read  # type: ignore[method-assign]
        self.runs.get = self._get  # type: ignore[method-assign]
        self._positions = self.journal.read_positions
        self.journal.read_positions = self._read_positions  # type: ignore[method-assign]

    def begin(self, process: Process) -> None:
        """Belong to a server from now on."""
        self._disk.process = process
        self._is_paused = self._is_closing = False
        self.journal.crash()

    async def start(self, on_appended: OnAppended) -> None:
        disk = self._disk

        def reported(results: list[Appended]) -> None:
            disk.ledger.committed(results)
            disk.may_die("after")
            on_appended(results)

        await super().start(reported)

    async def close(self) -> None:
        self._is_closing = True
        await super().close()

    def _commit(self) -> None:
        disk = self._disk
        if (self._is_paused and not self._is_closing) or not self.journal._waiting:
            return
        if not self._is_closing and (pause_s := disk.pause_s()):
            self._is_paused = True
            assert disk.process is not None
            disk.process.later(pause_s, self._go_on)
            return
        self._write()

    def _go_on(self) -> None:
        self._is_paused = False
        if self.journal._waiting:
            self._write()

    def _write(self) -> None:
        disk = self._disk
        disk.may_die("before")
        mixing = None if self._is_closing else disk.faults.strikes("disk.mixed")
        self.journal.chance = None if mixing is None else random.Random(mixing.random())
        self.journal.unavailable_because = "it is full" if disk.is_full() else ""
        self._commit_now()

    async def _read(self, *args):
        self._check_readable()
        return await self._read_journal(*args)

    async def _read_positions(self, *args):
        self._check_readable()
        return await self._positions(*args)

    async def _get(self, key):
        self._check_readable()
        return await self._get_row(key)

    def _check_readable(self) -> None:
        if self._disk.is_unreadable():
            raise unavailable()

    def read_back(self) -> dict[str, list[event_pb2.RunEvent]]:
        """Return what is stored, by run."""
        return {key.run_id: self.events(key.run_id) for key in self.runs.by_key}

    def drop(self) -> None:
        """Lose what the process that was killed had open."""


__all__ = ["DiskFaults", "MemoryDisk"]
