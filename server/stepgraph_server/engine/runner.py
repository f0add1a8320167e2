"""The one loop: input -> decide -> append -> (durable) -> act -> publish.

Rules, in this order, for each input:

1. `decide` advances the state in memory and gives events.
2. The events are submitted as one append. Further inputs of the run may be decided meanwhile; their appends follow in order.
3. Nothing is acted on, answered or published before the append is durable. This happens in one place, `_on_durable`.
4. If an append fails, the state in memory is dropped, and the run is folded again from the journal. What executors
   reported is then taken again; callers learn that it failed.

Everything here runs on the event loop's thread, so that no lock is needed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from stepgraph.v1 import event_pb2, run_pb2
from stepgraph_server.core.errors import GraphInvalid, Quarantined, Refused
from stepgraph_server.core.inputs import GoOn, Look, Outcomes, TimePassed
from stepgraph_server.core.outcomes import STALE
from stepgraph_server.core.run import decide, evolve, new_state, next_due
from stepgraph_server.engine.encoding import encode_append
from stepgraph_server.engine.live import Delivery, FutureReply, LiveRun, Pending
from stepgraph_server.engine.timers import Timers
from stepgraph_server.storage.errors import (
    JournalUnavailable,
    RequestIdReused,
    RunExists,
    StorageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from stepgraph.v1 import executor_service_pb2
    from stepgraph_server.core.inputs import Decision, World
    from stepgraph_server.core.state import RunState
    from stepgraph_server.engine.clock import Clock
    from stepgraph_server.engine.graph_cache import GraphCache
    from stepgraph_server.storage.records import Appended, RunKey
    from stepgraph_server.storage.store import Store

_log = logging.getLogger(__name__)

#: How much of a journal is read at once when a run is loaded; between two reads other runs have their turn.
READ_BYTES: Final = 1024 * 1024
#: Delays before a journal that could not be read or written is tried again.
FIRST_RELOAD_DELAY_S: Final = 0.05
MAX_RELOAD_DELAY_S: Final = 5.0


class Acts(Protocol):
    """What the runner wants done; the dispatcher does it."""

    def world(self, key: RunKey) -> World:
        """Return the world as a run sees it."""
        ...

    def carry_out(self, pending: Pending) -> None:
        """Do what a durable append asks for. May be held back until `flush`."""
        ...

    def acknowledge(
        self,
        delivery: Delivery,
        acks: Iterable[tuple[str, int, executor_service_pb2.AckVerdict.ValueType]],
    ) -> None:
        """Tell an executor what became of its results. May be held back until `flush`."""
        ...

    def flush(self) -> None:
        """Send everything that was held back."""
        ...

    def undo(self, pending: Pending) -> None:
        """Take back what was reserved for an append that failed."""
        ...

    def recovered(self, run: LiveRun) -> None:
        """Take up the outstanding tasks of a run that was folded from its journal."""
        ...


class Publisher(Protocol):
    """Whoever shows events to watchers."""

    def publish(  # the parts of one append, once per append
        self,
        key: RunKey,
        batch: bytes,
        first_sequence: int,
        last_sequence: int,
        position: int,
        *,
        terminal: bool,
    ) -> None:
        """Show the events of one append."""
        ...


class Runner:
    """All runs that are in memory."""

    def __init__(  # the composition root passes each dependency by name
        self,
        *,
        store: Store,
        graphs: GraphCache,
        clock: Clock,
        acts: Acts,
        publisher: Publisher,
        spawn: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        self._store = store
        self._graphs = graphs
        self._clock = clock
        self._acts = acts
        self._publisher = publisher
        self._spawn = spawn
        self._live: dict[RunKey, LiveRun] = {}
        self.timers = Timers(clock, lambda key: self.deliver(key, Delivery(happened=TimePassed())))
        self.closing = False

    @property
    def live_count(self) -> int:
        """How many runs are in memory."""
        return len(self._live)

    def live(self, key: RunKey) -> LiveRun | None:
        """Return a run that is in memory."""
        return self._live.get(key)

    # Inputs

    def create(self, key: RunKey, state: RunState, delivery: Delivery) -> None:
        """Begin a run that does not exist yet."""
        if key in self._live:
            if delivery.reply is not None:
                delivery.reply.failed(RunExists(key))
            return
        run = LiveRun(key=key, state=state)
        self._live[key] = run
        self._take(run, delivery)

    def deliver(self, key: RunKey, delivery: Delivery) -> None:
        """Let something happen to a run; it is loaded if it is not in memory."""
        run = self._live.get(key)
        if run is None:
            run = LiveRun(key=key)
            self._live[key] = run
            self._spawn(self._load(run))
        if run.state is None or run.broken:
            run.inbox.append(delivery)
        else:
            self._take(run, delivery)

    async def settled(self, key: RunKey) -> LiveRun:
        """Return a run once it is in memory and everything decided so far is durable. Raises Refused, Quarantined."""
        waiter: asyncio.Future[LiveRun] = asyncio.get_running_loop().create_future()
        self.deliver(key, Delivery(happened=Look(), reply=FutureReply(waiter, lambda run: run)))
        return await waiter

    def _take(self, run: LiveRun, delivery: Delivery) -> None:
        state = run.state
        assert state is not None
        if run.world is None:
            run.world = self._acts.world(run.key)
        try:
            decision = decide(state, delivery.happened, run.world, self._clock.now())  # type: ignore[arg-type]  # live.py does not know World
        except Refused as refusal:
            if delivery.reply is not None:
                # It may rest on events that are not durable yet; that is fine, for it says what is not done.
                delivery.reply.failed(refusal)
            return
        except Exception as error:  # noqa: BLE001  # a fault of the rules stops this run, and no other
            self._quarantine(run, delivery, error)
            return
        self._arm(run)
        if decision.events:
            self._submit(run, delivery, decision)
        else:
            self._stand_on_last(run, delivery, decision)

    def _arm(self, run: LiveRun) -> None:
        assert run.state is not None
        due = next_due(run.state)
        if due is not None:
            self.timers.arm(run.key, due)

    def _submit(self, run: LiveRun, delivery: Delivery, decision: Decision) -> None:
        state = run.state
        assert state is not None
        append = encode_append(run.key, state, decision.events)
        append.creation = delivery.creation
        append.request = delivery.record(run) if delivery.record is not None else None
        pending = Pending(
            run=run,
            delivery=delivery,
            commands=decision.commands,
            acks=decision.acks,
            final=state.final,
        )
        append.context = pending
        run.pending.append(pending)
        self._store.journal.submit(append)

    def _stand_on_last(self, run: LiveRun, delivery: Delivery, decision: Decision) -> None:
        """Answer an input that changed nothing, once everything that it rests on is durable."""
        delivery.unrecorded = True
        if run.pending:
            run.pending[-1].after.append((delivery, decision.acks))
            return
        self._finish(run, delivery, decision.acks)
        self._acts.flush()
        self._let_go(run)

    def _finish(
        self,
        run: LiveRun,
        delivery: Delivery,
        acks: list[tuple[str, int, executor_service_pb2.AckVerdict.ValueType]],
    ) -> None:
        if acks:
            self._acts.acknowledge(delivery, acks)
        if delivery.reply is not None:
            delivery.reply.done(run)

    # Durable, or not

    def on_appended(self, group: list[Appended]) -> None:
        """Take the news of one commit. The only way in which anything that follows from events gets done."""
        for appended in group:
            pending = appended.append.context
            assert isinstance(pending, Pending)
            run = pending.run
            run.pending.popleft()
            if appended.error is None:
                self._on_durable(run, pending, appended)
            else:
                self._on_failed(run, pending, appended.error)
        self._acts.flush()

    def _on_durable(self, run: LiveRun, pending: Pending, appended: Appended) -> None:
        append = appended.append
        self._acts.carry_out(pending)
        self._finish(run, pending.delivery, pending.acks)
        for delivery, acks in pending.after:
            self._finish(run, delivery, acks)
        self._publisher.publish(
            run.key,
            append.batch,
            append.first_sequence,
            append.last_sequence,
            appended.position,
            terminal=pending.final,
        )
        self._let_go(run)

    def _on_failed(self, run: LiveRun, pending: Pending, error: StorageError) -> None:
        self._acts.undo(pending)
        run.broken = True
        self._give_back(run, pending.delivery, error)
        for delivery, _ in pending.after:
            self._give_back(run, delivery, error)
        if run.pending:
            return
        # Everything that was decided on top has been reported; now the state can be made again.
        _log.warning(
            "an append failed; the run is read again",
            extra={
                "action": "append_failed",
                "run_id": run.key.run_id,
                "error": type(error).__name__,
            },
        )
        run.state, run.broken = None, False
        if isinstance(error, RunExists | RequestIdReused) and not run.inbox:
            # It was never created by us.
            self._live.pop(run.key, None)
            return
        self._spawn(self._load(run))

    def _give_back(self, run: LiveRun, delivery: Delivery, error: StorageError) -> None:
        if delivery.keep:
            run.inbox.append(delivery)
        elif delivery.reply is not None:
            delivery.reply.failed(error)

    def _let_go(self, run: LiveRun) -> None:
        """Forget a run that nothing is under way with: one that is final, or waits for people."""
        state = run.state
        if state is None or run.pending or run.inbox or run.broken:
            return
        if state.final or state.status == run_pb2.RUN_STATUS_SUSPENDED:
            self._live.pop(run.key, None)

    # Loading

    async def _load(self, run: LiveRun) -> None:
        """Fold a run from its journal, then let what has happened to it meanwhile happen."""
        try:
            state = run.state = await self._fold_stubbornly(run.key)
        except (Refused, GraphInvalid, Quarantined) as error:
            await self._refuse_all(run, error)
            return
        self._arm(run)
        if not state.final:
            self._acts.recovered(run)
            self._take(run, Delivery(happened=GoOn()))
        while run.inbox and not run.broken:
            self._take(run, run.inbox.popleft())
        self._acts.flush()
        self._let_go(run)

    async def _fold_stubbornly(self, key: RunKey) -> RunState:
        """Fold a run; while the journal can't be read, wait and try again, because its work must not get lost."""
        delay = FIRST_RELOAD_DELAY_S
        while True:
            try:
                return await self._fold(key)
            except JournalUnavailable:
                await asyncio.sleep(delay)
                delay = min(delay * 2, MAX_RELOAD_DELAY_S)

    async def _fold(self, key: RunKey) -> RunState:
        record = await self._store.runs.get(key)
        if record is None:
            message = f"there is no run {key.run_id!r} in namespace {key.namespace!r}"
            raise Refused("RUN_NOT_FOUND", message, metadata={"run_id": key.run_id})
        if record.quarantined:
            raise Quarantined(
                key.run_id, record.progress.last_sequence, "it was quarantined before"
            )
        graph = await self._graphs.by_digest(key.namespace, record.creation.graph_digest)
        return await self.fold_until(
            key, new_state(key.run_id, graph, record.creation.create_time), None
        )

    async def fold_until(self, key: RunKey, state: RunState, last: int | None) -> RunState:
        """Fold a run's events into a new state, up to `last` or all. Raises Quarantined where that is impossible."""
        while last is None or state.sequence < last:
            batches = await self._store.journal.read(key, state.sequence, READ_BYTES)
            if not batches:
                break
            for stored in batches:
                state.journal_bytes += len(stored.batch)
                self._fold_batch(state, stored.batch, last)
        return state

    @staticmethod
    def _fold_batch(state: RunState, batch: bytes, last: int | None) -> None:
        try:
            for event in event_pb2.EventBatch.FromString(batch).events:
                if last is not None and event.sequence > last:
                    return
                evolve(state, event)
        except Exception as error:  # whatever stops a fold stops it for this run alone, and says so
            raise Quarantined(state.run_id, state.sequence, repr(error)) from error

    async def _refuse_all(self, run: LiveRun, error: Exception) -> None:
        self._live.pop(run.key, None)
        if isinstance(error, Quarantined | GraphInvalid):
            _log.error(
                "a run can't be read and is quarantined",
                extra={"action": "run_quarantined", "run_id": run.key.run_id, "error": str(error)},
            )
            await self._store.runs.set_quarantined(run.key)
        for delivery in run.inbox:
            self._fail(delivery, error)
        run.inbox.clear()
        self._acts.flush()

    def _fail(self, delivery: Delivery, error: Exception) -> None:
        happened = delivery.happened
        if isinstance(happened, Outcomes):
            # Nobody will ever want these; an executor that is told so can forget them.
            self._acts.acknowledge(
                delivery, [(o.task_id, o.attempt, STALE) for _, o in happened.outcomes]
            )
        if delivery.reply is not None:
            delivery.reply.failed(error)

    def _quarantine(self, run: LiveRun, delivery: Delivery, error: Exception) -> None:
        """Stop acting on a run whose rules broke down: a fault of ours that must not take the server with it."""
        _log.error(
            "a decision failed; the run is quarantined",
            extra={
                "action": "decision_failed",
                "run_id": run.key.run_id,
                "input": type(delivery.happened).__name__,
            },
            exc_info=error,
        )
        self._live.pop(run.key, None)
        run.broken = True
        self._fail(delivery, error)
        self._spawn(self._set_quarantined(run.key))

    async def _set_quarantined(self, key: RunKey) -> None:
        await self._store.runs.set_quarantined(key)
