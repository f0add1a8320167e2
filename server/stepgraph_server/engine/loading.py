"""Which run is loaded next: a few at a time, and what somebody waits for before what nobody does.

Rules: a run is asked for once and loaded once; asking for more never loads more at a time. So neither a restart with many open
runs nor an executor that reports attempts of runs that nobody knows makes the others wait for more than a few loads.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from stepgraph_server.engine.live import LiveRun

MAX_LOADS: Final = 32
"""So many runs are loaded at a time: enough to keep the threads that read busy, and few enough that the one that is asked for
next begins at once."""

#: Delays before a journal that could not be read or written is tried again; each is twice the one before.
FIRST_DELAY_S: Final = 0.05
MAX_DELAY_S: Final = 5.0
#: Doubling goes no further than this, far beyond the longest delay.
_MAX_DOUBLINGS: Final = 10


def delay_s(tries: int) -> float:
    """Return how long to wait before trying again what has failed so many times."""
    return min(FIRST_DELAY_S * 2.0 ** min(tries - 1, _MAX_DOUBLINGS), MAX_DELAY_S)


class Loading:
    """Runs that are to be loaded."""

    def __init__(
        self,
        load: Callable[[LiveRun], Coroutine[None, None, None]],
        spawn: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        self._load = load
        self._spawn = spawn
        # Dictionaries without values: sets that keep the order of asking, from whose middle a run can be taken.
        self._wanted: dict[LiveRun, None] = {}
        self._patient: dict[LiveRun, None] = {}
        self._workers = 0

    def __len__(self) -> int:
        """How many runs wait."""
        return len(self._wanted) + len(self._patient)

    def ask(self, run: LiveRun, *, is_patient: bool = False) -> None:
        """Have a run loaded; a patient one after all that are not."""
        (self._patient if is_patient else self._wanted)[run] = None
        if self._workers < MAX_LOADS:
            self._workers += 1
            self._spawn(self._work())

    def ask_again(self, run: LiveRun) -> None:
        """Have a run loaded for which something failed, when that may work again; the later the more often it failed."""
        self._spawn(self._ask_later(run))

    async def _ask_later(self, run: LiveRun) -> None:
        await asyncio.sleep(delay_s(run.failures))
        self.ask(run)

    def hurry(self, run: LiveRun) -> None:
        """Note that somebody waits for a run that was asked for. Harmless if its turn has come already."""
        if run in self._patient:
            del self._patient[run]
            self._wanted[run] = None

    async def _work(self) -> None:
        try:
            while queue := self._wanted or self._patient:
                run = next(iter(queue))
                del queue[run]
                await self._load(run)
        finally:
            self._workers -= 1
