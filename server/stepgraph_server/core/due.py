"""When something of a run happens by itself next.

Rules: a heap that is corrected lazily. An entry says "look at this key at that time"; whoever takes it checks whether it
still means anything. So arming is O(log n), nothing is ever searched for, and a run with ten thousand tasks pays no more
for each of them than a run with one.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stepgraph_server.core.instants import Instant


class DueTimes:
    """Times at which keys want to be looked at."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, str]] = []

    def arm(self, at: Instant, key: str) -> None:
        """Ask for a look at `key` at `at`. Asking twice is harmless."""
        heapq.heappush(self._heap, (at, key))

    def next(self, is_live: Callable[[str], bool]) -> Instant | None:
        """Return the earliest time of a key that is live, or None; drops what is not."""
        heap = self._heap
        while heap and not is_live(heap[0][1]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take(self, now: Instant) -> Iterator[str]:
        """Yield the keys whose time has come, each at most once, earliest first."""
        seen: set[str] = set()
        heap = self._heap
        while heap and heap[0][0] <= now:
            key = heapq.heappop(heap)[1]
            if key not in seen:
                seen.add(key)
                yield key

    def __len__(self) -> int:
        return len(self._heap)
