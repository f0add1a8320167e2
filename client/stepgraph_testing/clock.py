"""The clock of a workbench: it goes with the machine's, and jumps when nobody would miss the time in between.

Rules: it only goes forward. What sleeps by this clock wakes when it jumps; what sleeps by the machine's is not skipped.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import TYPE_CHECKING, Final

from stepgraph_client.durations import Span, to_duration
from stepgraph_server.core.instants import Instant, after, from_duration
from stepgraph_server.engine.clock import SystemClock

if TYPE_CHECKING:
    from stepgraph_server.core.instants import Span as Micros


class BenchClock:
    """See the module."""

    def __init__(self) -> None:
        self._system: Final = SystemClock()
        self._ahead = 0
        self._order: Final = itertools.count()
        self._sleepers: Final[list[tuple[Instant, int, asyncio.Future[None]]]] = []

    def now(self) -> Instant:
        """Return the time."""
        return Instant(self._system.now() + self._ahead)

    @property
    def sleeping(self) -> int:
        """How many sleep."""
        return sum(not sleeper.done() for _, _, sleeper in self._sleepers)

    def next_due(self) -> Instant | None:
        """Return when the next one wakes; None if nobody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    async def sleep(self, how_long: Span) -> None:
        """Sleep until the clock has jumped so far."""
        due = after(self.now(), micros(how_long))
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (due, next(self._order), sleeper))
        await sleeper

    def jump(self, to: Instant) -> None:
        """Let it be later, and wake who sleeps until then. A time that is over only wakes."""
        self._ahead += max(0, to - self.now())
        while (due := self.next_due()) is not None and due <= self.now():
            heapq.heappop(self._sleepers)[2].set_result(None)


def micros(span: Span) -> Micros:
    """Return a length of time as the server counts it."""
    return from_duration(to_duration(span))
