"""Long runs that wait, and stay in memory for a while.

Rules: a run that waits is let go, and read from its journal when something happens to it. Where thousands of questions are open in one
run, that would be thousands of reads of all of it, so the few long runs that came to rest last stay. It is a cache: every run in
here may be let go at any time, and nothing is lost.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stepgraph_server.engine.live import LiveRun

#: A shorter run is read in a few milliseconds.
LONG_EVENTS: Final = 1_000
#: So many stay. They are as large as a run may be, so there must be few.
MAX_LINGERING: Final = 4


class Lingering:
    """The long runs that came to rest last."""

    def __init__(self) -> None:
        self._runs: OrderedDict[int, LiveRun] = OrderedDict()

    def take(self, run: LiveRun) -> bool:
        """Take in a run that has come to rest, if it is long. Returns whether it stays."""
        if run.state is None or run.state.sequence < LONG_EVENTS:
            return False
        self._runs[id(run)] = run
        self._runs.move_to_end(id(run))
        return True

    def too_many(self) -> LiveRun | None:
        """Return a run that must stay no longer; None if there is room."""
        if len(self._runs) <= MAX_LINGERING:
            return None
        return self._runs.popitem(last=False)[1]

    def drop(self, run: LiveRun) -> None:
        """Forget a run; harmless if it is not here."""
        self._runs.pop(id(run), None)
