"""What executors report, on its way to the runs that it concerns.

Rules: all of one frame that concerns one run is one input, and most of it is delivered in the turn in which the frame came. Two
kinds wait, so that one frame can't keep everybody else: what must be loaded for it, of which a few are asked for at a time, and
what refers to stored values, which are looked up first, because a run whose state refers to nothing could never go on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

from stepgraph_server.core.inputs import Outcomes
from stepgraph_server.core.results import stored_digests
from stepgraph_server.engine.live import Delivery
from stepgraph_server.storage.errors import JournalUnavailable
from stepgraph_server.storage.records import RunKey

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from stepgraph.v1 import executor_service_pb2
    from stepgraph_server.engine.runner import Runner
    from stepgraph_server.executors.seats import Seat
    from stepgraph_server.storage.values import Values

    #: Ids of tasks within their run, with what was reported of them.
    Items: TypeAlias = list[tuple[str, executor_service_pb2.AttemptOutcome]]
    Missing: TypeAlias = dict[int, str]

#: Runs that are not in memory are asked for by so many at a time, and not before so few of them wait to be loaded.
STRAYS_AT_ONCE: Final = 64
#: When to look again whether more can be asked for.
STRAYS_PERIOD_S: Final = 0.005
#: When to look again for a value, if nothing can be read: the result must not get lost.
LOOK_UP_PERIOD_S: Final = 0.5


class Reports:
    """Outcomes on their way to runs."""

    def __init__(
        self, values: Values, spawn: Callable[[Coroutine[None, None, None]], None]
    ) -> None:
        self._values = values
        self._spawn = spawn
        #: What was reported to runs that are not in memory. There may be thousands in one frame, of runs that never were.
        self._strays: deque[tuple[Seat, RunKey, Items, Missing]] = deque()

    def take(
        self,
        runner: Runner,
        seat: Seat,
        outcomes: Sequence[executor_service_pb2.AttemptOutcome],
    ) -> None:
        """Deliver the outcomes of one frame, each soon."""
        by_run: dict[str, Items] = {}
        referring: dict[str, None] = {}
        for outcome in outcomes:
            run_id, _, task_id = outcome.task_id.partition("/")
            items = by_run.get(run_id)
            if items is None:
                items = by_run[run_id] = []
            items.append((task_id, outcome))
            if outcome.HasField("succeeded") and stored_digests(outcome.succeeded):
                referring[run_id] = None
        if referring:
            found = [(RunKey(seat.namespace, run_id), by_run.pop(run_id)) for run_id in referring]
            self._spawn(self._look_up(runner, seat, found))
        for run_id, items in by_run.items():
            self._deliver(runner, seat, RunKey(seat.namespace, run_id), items, {})

    def _deliver(
        self, runner: Runner, seat: Seat, key: RunKey, items: Items, missing: Missing
    ) -> None:
        if runner.live(key) is not None:
            _report(runner, seat, key, items, missing)
            return
        # Made into inputs when their turn comes: in the turn of the frame this would be most of the cost.
        self._strays.append((seat, key, items, missing))
        if len(self._strays) == 1:
            asyncio.get_running_loop().call_soon(self._ask_for_strays, runner)

    def _ask_for_strays(self, runner: Runner) -> None:
        """Report to runs that must be loaded for it, so slowly that nobody else notices."""
        if runner.loading < STRAYS_AT_ONCE:
            for _ in range(min(STRAYS_AT_ONCE, len(self._strays))):
                _report(runner, *self._strays.popleft())
        if self._strays:
            asyncio.get_running_loop().call_later(STRAYS_PERIOD_S, self._ask_for_strays, runner)

    async def _look_up(
        self, runner: Runner, seat: Seat, reports: Iterable[tuple[RunKey, Items]]
    ) -> None:
        for key, items in reports:
            missing = {}
            for place, (_, outcome) in enumerate(items):
                for digest in stored_digests(outcome.succeeded):
                    if not await self._exists(seat.namespace, digest):
                        missing[place] = digest
                        break
            self._deliver(runner, seat, key, items, missing)

    async def _exists(self, namespace: str, digest: str) -> bool:
        while True:
            try:
                return await self._values.stat(namespace, digest) is not None
            except JournalUnavailable:
                await asyncio.sleep(LOOK_UP_PERIOD_S)


def _report(runner: Runner, seat: Seat, key: RunKey, items: Items, missing: Missing) -> None:
    happened = Outcomes(instance=seat.instance, outcomes=tuple(items), source=seat, missing=missing)
    runner.deliver(key, Delivery(happened=happened, keep=True))
