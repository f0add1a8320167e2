"""What executors report, on its way to the runs that it concerns.

Rules: all of one frame that concerns one run is one input, and most of it is delivered in the turn in which the frame came. Two
kinds wait, so that one frame can't keep everybody else: what must be loaded for it, of which a few are asked for at a time, and
what refers to stored values or waits for a token, which are looked up first: a run whose state refers to nothing could never go
on, and one token answers one question.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from stepgraph_server.core.inputs import Outcomes
from stepgraph_server.core.results import stored_digests
from stepgraph_server.engine.live import Delivery
from stepgraph_server.engine.tokens import Tokens, external_token
from stepgraph_server.storage.errors import JournalUnavailable
from stepgraph_server.storage.records import RunKey

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from stepgraph.v1 import executor_service_pb2
    from stepgraph_server.engine.runner import Runner
    from stepgraph_server.executors.seats import Seat
    from stepgraph_server.storage.interrupts import Interrupts
    from stepgraph_server.storage.values import Values

    #: Ids of tasks within their run, with what was reported of them.
    Items: TypeAlias = list[tuple[str, executor_service_pb2.AttemptOutcome]]

#: Runs that are not in memory are asked for by so many at a time, and not before so few of them wait to be loaded.
STRAYS_AT_ONCE: Final = 64
#: When to look again whether more can be asked for.
STRAYS_PERIOD_S: Final = 0.005
#: When to look again for a value, if nothing can be read: the result must not get lost.
LOOK_UP_PERIOD_S: Final = 0.5


@dataclass(slots=True)
class Found:
    """What was looked up of the outcomes of one run, by their positions."""

    #: Digests of stored values that do not exist.
    missing: dict[int, str] = field(default_factory=dict)
    #: Replies that wait for a token for which a question of another run waits.
    taken: set[int] = field(default_factory=set)


#: Nothing was to be looked up. Nobody changes it.
NOTHING: Final = Found()


class Reports:
    """Outcomes on their way to runs."""

    def __init__(
        self,
        values: Values,
        interrupts: Interrupts,
        spawn: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        self._values = values
        self._tokens = Tokens(interrupts)
        self._spawn = spawn
        #: What was reported to runs that are not in memory. There may be thousands in one frame, of runs that never were.
        self._strays: deque[tuple[Seat, RunKey, Items, Found]] = deque()

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
            if outcome.HasField("succeeded") and (
                stored_digests(outcome.succeeded) or external_token(outcome.succeeded)
            ):
                referring[run_id] = None
        if referring:
            reports = [(RunKey(seat.namespace, run_id), by_run.pop(run_id)) for run_id in referring]
            self._spawn(self._look_up(runner, seat, reports))
        for run_id, items in by_run.items():
            self._deliver(runner, seat, RunKey(seat.namespace, run_id), items, NOTHING)

    def _deliver(self, runner: Runner, seat: Seat, key: RunKey, items: Items, found: Found) -> None:
        if runner.live(key) is not None:
            _report(runner, seat, key, items, found)
            return
        # Made into inputs when their turn comes: in the turn of the frame this would be most of the cost.
        self._strays.append((seat, key, items, found))
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
            found = Found()
            tokens: dict[int, str] = {}
            for place, (_, outcome) in enumerate(items):
                for digest in stored_digests(outcome.succeeded):
                    if not await self._exists(seat.namespace, digest):
                        found.missing[place] = digest
                        break
                if token := external_token(outcome.succeeded):
                    tokens[place] = token
            if not tokens:
                self._deliver(runner, seat, key, items, found)
                continue
            # One after the other, up to the delivery: of two runs that want one token at once, the second must learn of it.
            async with self._tokens.lock:
                for place, token in tokens.items():
                    if await self._tokens.is_taken(runner, key, token):
                        found.taken.add(place)
                self._deliver(runner, seat, key, items, found)

    async def _exists(self, namespace: str, digest: str) -> bool:
        while True:
            try:
                return await self._values.stat(namespace, digest) is not None
            except JournalUnavailable:
                await asyncio.sleep(LOOK_UP_PERIOD_S)


def _report(runner: Runner, seat: Seat, key: RunKey, items: Items, found: Found) -> None:
    happened = Outcomes(
        instance=seat.instance,
        outcomes=tuple(items),
        source=seat,
        missing=found.missing,
        taken=found.taken,
    )
    runner.deliver(key, Delivery(happened=happened, keep=True))
