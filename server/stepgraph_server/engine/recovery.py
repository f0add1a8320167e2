"""What a restart takes up, and what happens by itself while the server lives."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import run_pb2
from stepgraph_server.core.errors import StepgraphError
from stepgraph_server.telemetry import names

if TYPE_CHECKING:
    from stepgraph_server.engine.clock import Clock
    from stepgraph_server.engine.dispatcher import Dispatcher
    from stepgraph_server.engine.runner import Runner
    from stepgraph_server.executors.registry import Registry
    from stepgraph_server.storage.records import RunKey
    from stepgraph_server.storage.runs import Runs

_log = logging.getLogger(__name__)

#: How often executors whose grace is over are looked for; it adds at most this to the grace.
EXPIRY_PERIOD_S: Final = 0.25
#: Rows that recovery reads at once.
RECOVERY_PAGE: Final = 1_000
#: Runs that recovery takes up at a time. What is asked for meanwhile waits for no more than these.
RECOVERED_AT_ONCE: Final = 16
#: How often a recovery that takes long says how far it is.
RECOVERY_REPORT_S: Final = 2.0
#: Executors may have attempts of these.
_UNDER_WAY: Final = (
    run_pb2.RUN_STATUS_RUNNING,
    run_pb2.RUN_STATUS_PAUSED,
    run_pb2.RUN_STATUS_STOPPING,
)


class Recovery:
    """Takes up runs after a restart, and tells runs of executors that are gone."""

    def __init__(
        self,
        *,
        runs: Runs,
        runner: Runner,
        dispatcher: Dispatcher,
        registry: Registry,
        clock: Clock,
    ) -> None:
        self._runs = runs
        self._runner = runner
        self._dispatcher = dispatcher
        self._registry = registry
        self._clock = clock

    async def recover(self) -> list[RunKey]:
        """Arm the timers of all open runs, and return those that `take_up` is for.

        Runs that only wait for people or time cost a row and a timer.
        """
        cursor = 0
        found: list[RunKey] = []
        while True:
            page = await self._runs.open_runs(cursor, RECOVERY_PAGE)
            for row in page:
                cursor = row.rowid
                if row.next_due is not None:
                    self._runner.timers.arm(row.key, row.next_due)
                # One that waits for its child runs may not have heard of the end of one.
                if row.status in _UNDER_WAY or row.has_ended_child:
                    found.append(row.key)
            if len(page) < RECOVERY_PAGE:
                return found

    async def take_up(self, keys: list[RunKey]) -> None:
        """Load all runs that were under way, a few at a time, and say in the log how far it is.

        Meanwhile calls are answered and executors connect: whoever asks for one of these runs has it loaded at once.
        """
        if not keys:
            return
        loop = asyncio.get_running_loop()
        started = reported = loop.time()
        for first in range(0, len(keys), RECOVERED_AT_ONCE):
            if loop.time() - reported >= RECOVERY_REPORT_S:
                reported = loop.time()
                _log.info(
                    "Runs that were under way are being taken up",
                    extra={"action": names.RUNS_RECOVERING, "done": first, "count": len(keys)},
                )
            await asyncio.gather(*map(self._take_up, keys[first : first + RECOVERED_AT_ONCE]))
        _log.info(
            "Runs that were under way were taken up",
            extra={
                "action": names.RUNS_RECOVERED,
                "count": len(keys),
                "seconds": round(loop.time() - started, 1),
            },
        )

    async def _take_up(self, key: RunKey) -> None:
        # What can't be read is quarantined, which the log says; it must not keep the others.
        with contextlib.suppress(StepgraphError):
            await self._runner.settled(key)

    async def watch_graces(self) -> None:
        """Tell runs of executors that did not come back. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(EXPIRY_PERIOD_S)
            for lost in self._registry.expire(self._clock.now()):
                self._dispatcher.lost(lost)
