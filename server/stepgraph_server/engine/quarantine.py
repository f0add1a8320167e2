"""Runs that can't go on: one that can't be read or decided must not take the server with it.

Rules: whoever waits for such a run hears of it, and executors can forget what they did for it. Nothing acts on a run from the
moment at which it is taken in, also while the mark in its row can't be written.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from stepgraph_server.core.errors import Quarantined
from stepgraph_server.core.inputs import Outcomes
from stepgraph_server.core.outcomes import STALE
from stepgraph_server.engine.folding import QUARANTINED_BEFORE
from stepgraph_server.engine.loading import delay_s
from stepgraph_server.storage.errors import JournalUnavailable
from stepgraph_server.telemetry import names

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from stepgraph.v1 import executor_service_pb2
    from stepgraph_server.core.errors import StepgraphError
    from stepgraph_server.engine.live import Delivery, LiveRun
    from stepgraph_server.storage.records import RunKey
    from stepgraph_server.storage.runs import Runs

_log = logging.getLogger(__name__)


class Executors(Protocol):
    """Who works for the run."""

    def acknowledge(
        self,
        delivery: Delivery,
        acks: Iterable[tuple[str, int, executor_service_pb2.AckVerdict.ValueType]],
    ) -> None:
        """Tell an executor what became of its results."""
        ...

    def abandon(self, key: RunKey) -> None:
        """Give up everything that was handed out of a run."""
        ...


class Quarantine:
    """Where runs go that can't go on."""

    def __init__(
        self, runs: Runs, acts: Executors, spawn: Callable[[Coroutine[None, None, None]], None]
    ) -> None:
        self._runs = runs
        self._acts = acts
        self._spawn = spawn
        self._closing = False
        #: Runs whose mark is not durable yet.
        self._condemned: set[RunKey] = set()

    def close(self) -> None:
        """Mark no run any more: what goes wrong while the server ends may be the end itself."""
        self._closing = True

    def check(self, key: RunKey) -> None:
        """Raise Quarantined for a run that was taken in and whose row does not say so yet."""
        if key in self._condemned:
            raise Quarantined(key.run_id, 0, QUARANTINED_BEFORE)

    def take(self, run: LiveRun, error: Exception) -> Quarantined:
        """Stop acting on a run that is in memory no more, and return what is said of it; `error` is why.

        Appends that are on their way are still reported, published and answered, but nothing is done for them.
        """
        key = run.key
        if isinstance(error, Quarantined):
            quarantined = error
        else:
            sequence = run.state.sequence if run.state is not None else 0
            quarantined = Quarantined(key.run_id, sequence, repr(error))
        run.abandoned = True
        self._acts.abandon(key)
        self.refuse_all(run, quarantined)
        if quarantined.cause_text != QUARANTINED_BEFORE and not self._closing:
            _log.error(
                "a run is quarantined",
                extra={"action": names.RUN_QUARANTINED, **run.log_fields},
                exc_info=error,
            )
            self._condemned.add(key)
            self._spawn(self._mark(key))
        return quarantined

    def refuse_all(self, run: LiveRun, error: StepgraphError) -> None:
        """Refuse what waits for a run."""
        while run.inbox:
            self.refuse(run.inbox.popleft(), error)

    def refuse(self, delivery: Delivery, error: StepgraphError) -> None:
        """Refuse what will never happen to its run."""
        happened = delivery.happened
        if isinstance(happened, Outcomes):
            # Nobody will ever want these; an executor that is told so can forget them.
            self._acts.acknowledge(
                delivery, [(o.task_id, o.attempt, STALE) for _, o in happened.outcomes]
            )
        if delivery.reply is not None:
            delivery.reply.failed(error)

    async def _mark(self, key: RunKey) -> None:
        tries = 0
        while True:
            try:
                await self._runs.set_quarantined(key)
            except JournalUnavailable:
                tries += 1
                await asyncio.sleep(delay_s(tries))
            else:
                self._condemned.discard(key)
                return
