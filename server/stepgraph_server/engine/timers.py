"""When runs want to be looked at, whether they are in memory or not.

Rules: at most one entry a run counts, the earliest; a look that turns out to be too early costs a decision without events.
One timer of the loop serves all.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING, Final

from stepgraph_server.core.instants import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepgraph_server.core.instants import Instant
    from stepgraph_server.engine.clock import Clock
    from stepgraph_server.storage.records import RunKey

#: The longest sleep: clocks of the wall and of the loop drift apart, and the machine may have slept.
MAX_SLEEP_S: Final = 60.0
#: So many runs are looked at in one turn of the loop.
MAX_PER_TURN: Final = 256


class Timers:
    """Due times of all runs."""

    def __init__(self, clock: Clock, on_due: Callable[[RunKey], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._heap: list[tuple[Instant, RunKey]] = []
        self._armed: dict[RunKey, Instant] = {}
        self._handle: asyncio.TimerHandle | None = None
        self._wakes_at: Instant | None = None

    def arm(self, key: RunKey, at: Instant) -> None:
        """Ask for a look at a run. A later time than one that was asked for before changes nothing."""
        armed = self._armed.get(key)
        if armed is not None and armed <= at:
            return
        self._armed[key] = at
        heapq.heappush(self._heap, (at, key))
        if self._wakes_at is None or at < self._wakes_at:
            self._sleep()

    def close(self) -> None:
        """Wake nobody any more."""
        if self._handle is not None:
            self._handle.cancel()
        self._heap.clear()
        self._armed.clear()

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
        self._wakes_at = None
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
