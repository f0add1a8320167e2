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

from stepgraph.v1 import run_pb2
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.inputs import Decision, GoOn, Look, Outcomes, TimePassed
from stepgraph_server.core.run import decide, next_due, only_sleeps
from stepgraph_server.core.state import TaskStatus
from stepgraph_server.engine.encoding import encode_append
from stepgraph_server.engine.folding import Folder
from stepgraph_server.engine.lingering import Lingering
from stepgraph_server.engine.live import Delivery, FutureReply, LiveRun, Pending
from stepgraph_server.engine.loading import Loading
from stepgraph_server.engine.quarantine import Quarantine
from stepgraph_server.engine.timers import Timers
from stepgraph_server.storage.errors import (
    AppendInvalid,
    JournalUnavailable,
    RequestIdReused,
    RunExists,
    StorageError,
)
from stepgraph_server.telemetry import names
from stepgraph_server.telemetry.run_observer import RunObserver

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from stepgraph.v1 import executor_service_pb2
    from stepgraph_server.core.errors import Quarantined, StepgraphError
    from stepgraph_server.core.inputs import Command, World
    from stepgraph_server.core.instants import Instant
    from stepgraph_server.core.state import RunState
    from stepgraph_server.engine.clock import Clock
    from stepgraph_server.engine.graph_cache import GraphCache
    from stepgraph_server.storage.records import Appended, RunCreation, RunKey
    from stepgraph_server.storage.store import Store
    from stepgraph_server.telemetry.trace_ids import RunTrace

_log = logging.getLogger(__name__)

#: What waits for people or time costs no memory.
_WAITING: Final = (
    run_pb2.RUN_STATUS_PENDING,
    run_pb2.RUN_STATUS_SUSPENDED,
    run_pb2.RUN_STATUS_PAUSED,
)


class Acts(Protocol):
    """What the runner wants done; the dispatcher does it."""

    def world(self, key: RunKey) -> World:
        """Return the world as a run sees it."""
        ...

    def carry_out(self, run: LiveRun, commands: list[Command]) -> None:
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

    def undo(self, key: RunKey, commands: list[Command]) -> None:
        """Take back what was reserved for an append that failed."""
        ...

    def recovered(self, run: LiveRun) -> None:
        """Take up the outstanding tasks of a run that was folded from its journal."""
        ...

    def over(self, key: RunKey) -> None:
        """Forget what waits for a run that is final."""
        ...

    def abandon(self, key: RunKey) -> None:
        """Forget everything about a run that nothing acts on any more, whatever was under way with it."""
        ...


class Publisher(Protocol):
    """Whoever shows events to watchers."""

    def publish(  # noqa: PLR0913  # the parts of one append, once per append
        self,
        key: RunKey,
        batch: bytes,
        first_sequence: int,
        last_sequence: int,
        position: int,
        *,
        terminal: bool,
        creation: RunCreation | None,
    ) -> None:
        """Show the events of one append."""
        ...


class Runner:
    """All runs that are in memory."""

    def __init__(  # noqa: PLR0913  # the composition root passes each dependency by name
        self,
        *,
        store: Store,
        graphs: GraphCache,
        clock: Clock,
        acts: Acts,
        publisher: Publisher,
        spawn: Callable[[Coroutine[None, None, None]], None],
        observer: RunObserver | None = None,
    ) -> None:
        self._store = store
        self._observer = observer or RunObserver()
        self.folder = Folder(store, graphs)
        self._clock = clock
        self._acts = acts
        self._publisher = publisher
        self._live: dict[RunKey, LiveRun] = {}
        self._loading = Loading(self._load, spawn)
        self._lingering = Lingering()
        self._quarantined = Quarantine(store.runs, acts, spawn)
        self.timers = Timers(clock, lambda key: self.deliver(key, Delivery(happened=TimePassed())))
        self.closing = False

    @property
    def live_count(self) -> int:
        """How many runs are in memory."""
        return len(self._live)

    @property
    def loading(self) -> int:
        """How many runs wait to be loaded."""
        return len(self._loading)

    @property
    def at_rest(self) -> bool:
        """Whether nothing is being loaded, decided or written. What runs wait for outside goes on meanwhile."""
        return not self._loading and not any(
            run.pending or run.inbox for run in self._live.values()
        )

    def live(self, key: RunKey) -> LiveRun | None:
        """Return a run that is in memory."""
        return self._live.get(key)

    def trace_of(self, run: LiveRun) -> RunTrace:
        """Return the trace of a run that has started and is in memory."""
        if run.trace is None:
            assert run.state is not None
            run.trace = self._observer.trace_of(run.key.namespace, run.state)
        return run.trace

    def close(self) -> None:
        """Begin nothing any more, and turn away whoever waits for a run that is not there.

        Call it while the tasks of `spawn` still have their owner, and before the store is closed: what was decided is
        still written, reported and acted on.
        """
        self.closing = True
        self.timers.close()
        self._quarantined.close()
        for run in self._live.values():
            self._turn_away(run, self._closed())

    # Inputs

    def create(self, key: RunKey, state: RunState, delivery: Delivery) -> None:
        """Begin a run that does not exist yet. Fails with RunExists while one with its key is in memory, stored or not."""
        if key in self._live or self.closing:
            if delivery.reply is not None:
                delivery.reply.failed(self._closed() if self.closing else RunExists(key))
            return
        run = LiveRun(key=key, state=state)
        self._live[key] = run
        self._take(run, delivery)
        if delivery.refusal is not None:
            # It never came to be.
            self._remove(run)

    def deliver(self, key: RunKey, delivery: Delivery) -> None:
        """Let something happen to a run; it is loaded if it is not in memory."""
        run = self._live.get(key)
        if run is None:
            if self.closing:
                if delivery.reply is not None:
                    delivery.reply.failed(self._closed())
                return
            run = LiveRun(key=key)
            self._live[key] = run
            self._loading.ask(run, is_patient=isinstance(delivery.happened, Outcomes))
        if run.state is None or run.failure is not None:
            run.inbox.append(delivery)
            if not isinstance(delivery.happened, Outcomes):
                # One frame may report attempts of thousands of runs; that any of these is there, nobody has said.
                self._loading.hurry(run)
        else:
            self._take(run, delivery)

    async def settled(self, key: RunKey) -> LiveRun:
        """Return a run once it is in memory and everything decided so far is durable. Raises Refused, Quarantined."""
        waiter: asyncio.Future[LiveRun] = asyncio.get_running_loop().create_future()
        reply = FutureReply(waiter, lambda run: run)
        self.deliver(key, Delivery(happened=Look(), reply=reply, keep=True))
        return await waiter

    def _take(self, run: LiveRun, delivery: Delivery) -> None:
        state = run.state
        assert state is not None
        if run.world is None:
            run.world = self._acts.world(run.key)
        try:
            decision = decide(state, delivery.happened, run.world, self._clock.now())
            if delivery.reply is not None:
                delivery.reply.decided(run)
            due = (
                self._submit(run, state, delivery, decision) if decision.events else next_due(state)
            )
        except Refused as refusal:
            # It may rest on events that are not durable yet, and is said when they are.
            delivery.refusal = refusal
            decision, due = Decision(events=[], commands=[], acks=[]), next_due(state)
        except Exception as error:  # noqa: BLE001  # a fault of the rules stops this run, and no other
            self._quarantined.refuse(delivery, self._quarantine(run, error))
            return
        if due is not None:
            self.timers.arm(run.key, due)
        if not decision.events:
            self._stand_on_last(run, delivery, decision)

    def _submit(
        self, run: LiveRun, state: RunState, delivery: Delivery, decision: Decision
    ) -> Instant | None:
        """Hand the events of a decision to the journal, and return when something is due by itself after them."""
        self.trace_of(run)
        append = encode_append(run.key, state, decision.events)
        append.creation, append.prefix = delivery.creation, delivery.prefix
        append.request = delivery.record() if delivery.record is not None else None
        pending = Pending(run=run, delivery=delivery, decision=decision, final=state.final)
        append.context = pending
        run.pending.append(pending)
        self._store.journal.submit(append)
        return append.progress.next_due

    def _stand_on_last(self, run: LiveRun, delivery: Delivery, decision: Decision) -> None:
        """Answer an input that changed nothing, once everything that it rests on is durable."""
        delivery.unrecorded = True
        if run.pending:
            run.pending[-1].after.append((delivery, decision))
            return
        self._finish(run, delivery, decision)
        self._acts.flush()
        self._let_go(run)

    def _finish(self, run: LiveRun, delivery: Delivery, decision: Decision) -> None:
        """Do what follows from an input, now that what was decided is durable."""
        if decision.commands:
            self._carry_out(run, decision.commands)
        if decision.acks:
            self._acts.acknowledge(delivery, decision.acks)
        if delivery.reply is not None:
            if delivery.refusal is not None:
                delivery.reply.failed(delivery.refusal)
            else:
                delivery.reply.done()

    def _carry_out(self, run: LiveRun, commands: list[Command]) -> None:
        if run.abandoned:
            self._acts.undo(run.key, commands)
            return
        try:
            self._acts.carry_out(run, commands)
        except Exception as error:  # noqa: BLE001  # the other runs of the same commit must hear of theirs
            self._quarantine(run, error)

    # Durable, or not

    def on_appended(self, group: list[Appended]) -> None:
        """Take the news of one commit. The only way in which anything that follows from events gets done."""
        for appended in group:
            pending = appended.append.context
            assert isinstance(pending, Pending)
            pending.run.pending.popleft()
            if appended.error is None:
                self._on_durable(pending, appended)
            else:
                self._on_failed(pending, appended)
        self._acts.flush()

    def _on_durable(self, pending: Pending, appended: Appended) -> None:
        run, append = pending.run, appended.append
        run.failures = 0
        self._finish(run, pending.delivery, pending.decision)
        for delivery, decision in pending.after:
            self._finish(run, delivery, decision)
        self._publisher.publish(
            *(run.key, append.batch, append.first_sequence, append.last_sequence),
            appended.position,
            terminal=pending.final,
            creation=append.creation,
        )
        assert run.trace is not None, "it was submitted"
        self._observer.durable(
            run.trace, pending.decision.events, len(append.batch), append.progress.status
        )
        self._let_go(run)

    def _on_failed(self, pending: Pending, appended: Appended) -> None:
        run, error = pending.run, appended.error
        assert error is not None
        self._acts.undo(run.key, pending.decision.commands)
        is_first = run.failure is None
        if run.failure is None:
            # It says what is wrong; those after it were only built on it.
            run.failure = error
            run.failures += 1
            run.state = None if appended.append.creation is not None else run.state
        self._give_back(run, pending.delivery, error, is_victim=not is_first)
        for delivery, _ in pending.after:
            self._give_back(run, delivery, error, is_victim=True)
        if not run.pending and not run.abandoned:
            self._begin_again(run, run.failure)

    def _give_back(
        self, run: LiveRun, delivery: Delivery, error: StorageError, *, is_victim: bool
    ) -> None:
        """Take again what must not get lost, and what only stood on something that was refused; tell the others."""
        if run.abandoned:
            self._quarantined.refuse(delivery, error)
        elif delivery.keep or (is_victim and not isinstance(run.failure, JournalUnavailable)):
            delivery.refusal = None
            run.inbox.append(delivery)
        elif delivery.reply is not None:
            delivery.reply.failed(error)

    def _begin_again(self, run: LiveRun, failure: StorageError) -> None:
        """Make the state again: everything that was decided on top of what failed has been reported."""
        was_created = run.state is not None
        if run.state is not None:
            tasks = run.state.tasks.values()
            run.accepted = {(task.id, task.attempt) for task in tasks if task.accepted}
        run.state = None
        if self.closing or not (was_created or run.inbox):
            # It was never created by us, and nobody wants anything of it.
            self._remove(run)
            self._turn_away(run, failure)
            return
        if isinstance(failure, AppendInvalid):
            # Trying again is no use: the same would be decided again.
            self._quarantine(run, failure)
            return
        expected = isinstance(failure, RunExists | RequestIdReused)
        _log.log(
            logging.DEBUG if expected else logging.WARNING,
            "an append failed; the run is read again",
            extra={
                "action": names.RUN_REREAD,
                **run.log_fields,
                "error": type(failure).__name__,
                "cause": str(failure),
            },
        )
        if expected:
            self._loading.ask(run)
        else:
            self._loading.ask_again(run)

    def _turn_away(self, run: LiveRun, error: StepgraphError) -> None:
        """Tell those who wait for a run that is not there, except for what must not get lost."""
        waiting = list(run.inbox)
        run.inbox.clear()
        for delivery in waiting:
            if delivery.keep and not self.closing:
                run.inbox.append(delivery)
            elif delivery.reply is not None:
                delivery.reply.failed(error)

    def _let_go(self, run: LiveRun) -> None:
        """Forget a run that nothing is under way with: one that is final, or waits for people."""
        state = run.state
        if state is None or not _is_idle(run):
            return
        if state.final:
            self._remove(run)
            self._acts.over(run.key)
        elif _rests(state):
            if self._lingering.take(run):
                self._make_room()
            else:
                self._rest(run)

    def _make_room(self) -> None:
        """Let go of the long run that came to rest before the others."""
        run = self._lingering.too_many()
        if run is not None and run.state is not None and _is_idle(run) and _rests(run.state):
            # Else it is under way again, and comes to rest again.
            self._rest(run)

    def _rest(self, run: LiveRun) -> None:
        """Forget a run until something happens to it."""
        assert run.state is not None, "it has come to rest"
        self._remove(run)
        due = next_due(run.state)
        if due is not None:
            self.timers.arm(run.key, due)

    def _remove(self, run: LiveRun) -> None:
        self._lingering.drop(run)
        if self._live.get(run.key) is run:
            del self._live[run.key]
            self.timers.disarm(run.key)

    # Loading

    async def _load(self, run: LiveRun) -> None:
        """Fold a run from its journal, then let what has happened to it meanwhile happen."""
        try:
            state = await self._fold(run.key)
        except JournalUnavailable as error:
            # Its work must not get lost, so this is tried until it works; but it must not keep others from being loaded.
            run.failures += 1
            self._turn_away(run, error)
            self._loading.ask_again(run)
            return
        except Refused as error:
            self._remove(run)
            self._quarantined.refuse_all(run, error)
            self._acts.flush()
            return
        except Exception as error:  # noqa: BLE001  # whatever is wrong with a run must not end the server
            self._quarantine(run, error)
            self._acts.flush()
            return
        run.state, run.failure, run.trace = state, None, None
        if not state.final:
            self._acts.recovered(run)
            run.accepted = None
            self._take(run, Delivery(happened=GoOn()))
        while run.inbox and run.failure is None:
            self._take(run, run.inbox.popleft())
        self._acts.flush()
        self._let_go(run)

    async def _fold(self, key: RunKey) -> RunState:
        self._quarantined.check(key)
        return await self.folder.fold(key)

    def _quarantine(self, run: LiveRun, error: Exception) -> Quarantined:
        self._remove(run)
        return self._quarantined.take(run, error)

    @staticmethod
    def _closed() -> JournalUnavailable:
        return JournalUnavailable("the server", "it is shutting down", "Ask again in a moment")


def _is_idle(run: LiveRun) -> bool:
    return not (run.pending or run.inbox or run.failure is not None or run.abandoned)


def _rests(state: RunState) -> bool:
    """Whether nothing happens to a run by itself but that time passes."""
    return (state.status in _WAITING and not _is_worked_on(state)) or only_sleeps(state)


def _is_worked_on(state: RunState) -> bool:
    return any(task.status is TaskStatus.ASSIGNED for task in state.tasks.values())
