"""How long something takes, as counters by upper bounds.

Rules: one thread observes; any thread reads, and may see an observation in one counter that is not yet in the other.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""From half a millisecond, a commit of a fast disk, to what everybody notices."""


class Histogram:
    """Counts observations, in seconds."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds: Final = bounds
        self._counts = [0] * (len(bounds) + 1)
        #: The sum of all observations.
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        # An observation that is exactly a bound counts below it, as its label `le` says.
        self._counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Return for each bound, and for `+Inf`, how many observations were at most that."""
        count = 0
        for bound, each in zip((*map(str, self.bounds), "+Inf"), list(self._counts), strict=True):
            count += each
            yield bound, count
