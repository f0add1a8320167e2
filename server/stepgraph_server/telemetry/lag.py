"""Whether something keeps the loop: everything waits behind one turn of it, and nobody else would say so.

Rules: it is measured from the outside, by a sleep that ends late, so whatever hogs the loop is seen, also what is not ours. What
lags for long is said once a period with the worst of it, since a log that is flooded makes the lag worse.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from stepgraph_server.telemetry import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepgraph_server.telemetry.histogram import Histogram

MAX_LAG_S: Final = 0.25
"""A turn that takes longer is said: callers and executors with short deadlines notice it."""

PERIOD_S: Final = 0.1
"""How often the loop is looked at; each look costs a timer."""

QUIET_S: Final = 5.0
"""For so long nothing is said after it was said."""

_log = logging.getLogger(__name__)


class LagMeter:
    """Decides what of the lag is said. Pure: the time comes in."""

    def __init__(self, histogram: Histogram | None = None) -> None:
        """With a histogram, all lags are counted in it."""
        self._histogram = histogram
        self._worst = 0.0
        self._quiet_until = float("-inf")

    def note(self, lag_s: float, now: float) -> float | None:
        """Take how late the loop was; return the lag that is to be said now, if any."""
        if self._histogram is not None:
            self._histogram.observe(max(0.0, lag_s))
        if lag_s > MAX_LAG_S:
            self._worst = max(self._worst, lag_s)
        if not self._worst or now < self._quiet_until:
            return None
        worst, self._worst = self._worst, 0.0
        self._quiet_until = now + QUIET_S
        return worst


async def watch_lag(
    clock: Callable[[], float] | None = None, histogram: Histogram | None = None
) -> None:
    """Say when the loop is late, and count it. Runs until it is cancelled."""
    now = clock or asyncio.get_running_loop().time
    meter = LagMeter(histogram)
    last = now()
    while True:
        await asyncio.sleep(PERIOD_S)
        at = now()
        worst = meter.note(at - last - PERIOD_S, at)
        last = at
        if worst is not None:
            _log.warning(
                "One turn of the loop took long; everything else waited for it",
                extra={"action": names.LOOP_LAGGED, "milliseconds": round(worst * 1_000)},
            )
