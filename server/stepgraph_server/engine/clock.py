"""The one place that reads a clock."""

from __future__ import annotations

import time
from typing import Protocol

from stepgraph_server.core.instants import Instant


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> Instant:
        """Return the time by the wall clock. Never earlier than it returned before."""
        ...


class SystemClock:
    """The machine's clock; if that is set back, time stands still until it has caught up."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 0

    def now(self) -> Instant:
        """Return the time by the wall clock."""
        self._last = max(self._last, time.time_ns() // 1_000)
        return Instant(self._last)
