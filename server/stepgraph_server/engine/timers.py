"""When runs want to be looked at, whether they are in memory or not.

Rules: at most one entry a run counts, the earliest; a look that turns out to be too early costs a decision without events,
and for a run that is not in memory a read of its journal, so whoever lets go of a run says what it still waits for.
One timer of the loop serves all.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING, Final

from stepgraph_server.core.instants import SECOND, Instant

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepgraph_server.engine.clock import Clock
    from stepgraph_server.storage.records import RunKey

#: The longest sleep: clocks of the wall and of the loop drift apart, and the machine may have slept.
MAX_SLEEP_S: Final = 60.0
#: So many runs are looked at in one turn of the loop.
MAX_PER_TURN: Final = 256
#: So many entries that count for nothing may lie in the heap for each one that counts, and so many in any case: they are only
#: passed over when their time comes, which for a limit of days is too late.
MAX_DEAD_SHARE: Final = 4
MAX_DEAD: Final = 1_024

#: Earlier than everything: while those that are due are looked at, nobody has to plan the next look.
_AWAKE: Final = Instant(-1)


class Timers:
    """Due times of all runs."""

    def __init__(self, clock: Clock, on_due: Callable[[RunKey], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._heap: list[tuple[Instant, RunKey]] = []
        self._armed: dict[RunKey, Instant] = {}
        self._handle: asyncio.TimerHandle | None = None
        self._wakes_at: Instant | None = None
        self._closed = False

    def arm(self, key: RunKey, at: Instant) -> None:
        """Ask for a look at a run. A later time than one that was asked for before changes nothing."""
        armed = self._armed.get(key)
        if (armed is not None and armed <= at) or self._closed:
            return
        self._armed[key] = at
        heapq.heappush(self._heap, (at, key))
        if len(self._heap) > MAX_DEAD + MAX_DEAD_SHARE * len(self._armed):
            self._drop_dead()
        if self._wakes_at is None or at < self._wakes_at:
            self._sleep()

    def disarm(self, key: RunKey) -> None:
        """Ask for no look at a run any more. Harmless if none was asked for."""
        self._armed.pop(key, None)

    def next_look(self) -> Instant | None:
        """Return when the next run wants to be looked at; None if none does."""
        return min(self._armed.values(), default=None)

    def clock_moved(self) -> None:
        """Look at the clock again, because it was moved. Clocks of machines are looked at every minute anyway; those of tests jump."""
        if not self._closed and self._wakes_at != _AWAKE:
            self._sleep()

    def close(self) -> None:
        """Wake nobody any more, and take nothing more."""
        self._closed = True
        if self._handle is not None:
            self._handle.cancel()
        self._heap.clear()
        self._armed.clear()

    def _drop_dead(self) -> None:
        self._heap = [(at, key) for key, at in self._armed.items()]
        heapq.heapify(self._heap)

    def _sleep(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._wakes_at = None
        while self._heap and self._armed.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if not self._heap:
            return
        self._wakes_at = self._heap[0][0]
        delay = max(0.0, (self._wakes_at - self._clock.now()) / SECOND)
        self._handle = asyncio.get_running_loop().call_later(min(delay, MAX_SLEEP_S), self._wake)

    def _wake(self) -> None:
        self._handle = None
        self._wakes_at = _AWAKE
        now = self._clock.now()
        for _ in range(MAX_PER_TURN):
            if not self._heap or self._heap[0][0] > now:
                break
            at, key = heapq.heappop(self._heap)
            if self._armed.get(key) == at:
                del self._armed[key]
                self._on_due(key)
        self._sleep()

    def __len__(self) -> int:
        return len(self._armed)
