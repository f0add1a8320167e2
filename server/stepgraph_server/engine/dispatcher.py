"""Tasks on their way to executors, and what executors say on its way to runs.

Rules: nothing is sent before it is durable: the runner calls `carry_out` then, and `flush` once per commit, so that each
executor gets one frame with all that is ready. A slot of an executor stays taken until the executor reports the attempt, or
its session ends; that an attempt is over for its run does not free it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2, executor_service_pb2
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.inputs import (
    AttemptOver,
    AttemptRef,
    AttemptsLost,
    Enqueue,
    GoOn,
    Outcomes,
    RoomFound,
    Send,
    StopAttempt,
    Yield,
)
from stepgraph_server.core.state import TaskStatus
from stepgraph_server.core.tasks import note_accepted, note_progress
from stepgraph_server.engine.live import Delivery
from stepgraph_server.engine.task_frames import task_frame
from stepgraph_server.engine.waiting import WaitingTasks
from stepgraph_server.engine.world import RunWorld
from stepgraph_server.executors.port import split_task_id
from stepgraph_server.executors.seats import Wanted
from stepgraph_server.storage.records import RunKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from stepgraph_server.core.inputs import Command, RunLimits
    from stepgraph_server.core.state import Task
    from stepgraph_server.engine.clock import Clock
    from stepgraph_server.engine.live import LiveRun, Pending
    from stepgraph_server.engine.runner import Runner
    from stepgraph_server.engine.watch import WatchHub
    from stepgraph_server.executors.catalogue import Catalogue
    from stepgraph_server.executors.registry import Registry
    from stepgraph_server.executors.seats import Ack, LostInstance, Seat

_log = logging.getLogger(__name__)

Acks = list[tuple[str, int, executor_service_pb2.AckVerdict.ValueType]]
#: An instance of an executor: its namespace and the digest of its token.
InstanceKey = tuple[str, str]
#: An attempt: its run, its task relative to that, its number.
AttemptKey = tuple[RunKey, str, int]


class Dispatcher:
    """Between runs and executors."""

    def __init__(  # the composition root passes each dependency by name
        self,
        *,
        registry: Registry,
        catalogue: Catalogue,
        hub: WatchHub,
        clock: Clock,
        limits: RunLimits,
        jitter: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._catalogue = catalogue
        self._hub = hub
        self._clock = clock
        self._limits = limits
        self._jitter = jitter
        self._runner: Runner | None = None
        self._waiting = WaitingTasks()
        #: Attempts that are assigned, by the instance that has them.
        self._assigned: dict[InstanceKey, set[AttemptKey]] = {}
        #: Slots that are taken at a seat: by full task id and attempt.
        self._slots: dict[Seat, set[tuple[str, int]]] = {}
        self._tasks_out: dict[Seat, list[bytes]] = {}
        self._acks_out: dict[Seat, list[Ack]] = {}
        self._dispatch_planned = False
        #: What was taken from a queue is being placed, so the queue's order is kept by placing it at once.
        self._handing_out = False
        self.counts = Counts()

    def attach(self, runner: Runner) -> None:
        """Say where inputs of runs go. Called once, by the composition root."""
        self._runner = runner

    @property
    def runner(self) -> Runner:
        """The runner."""
        assert self._runner is not None, "attach was not called"
        return self._runner

    @property
    def waiting(self) -> WaitingTasks:
        """Tasks that wait for an executor with room."""
        return self._waiting

    # What runs ask for

    def world(self, key: RunKey) -> RunWorld:
        """Return the world as a run sees it."""
        return RunWorld(
            key=key,
            dispatcher=self,
            catalogue=self._catalogue,
            limits=self._limits,
            jitter=self._jitter,
        )

    def place(self, key: RunKey, task: Task) -> Seat | None:
        """Reserve a slot for the next attempt of a task; None if no executor has room, or others wait for it."""
        namespace = key.namespace
        if not self._handing_out and self._waiting.has(namespace, task.key, task.selector):
            return None
        seat = self._registry.reserve(namespace, task.key, task.selector)
        if seat is not None:
            slots = self._slots.get(seat)
            if slots is None:
                slots = self._slots[seat] = set()
            slots.add((f"{key.run_id}/{task.id}", task.attempt + 1))
        return seat

    def capable(self, key: RunKey, task: Task) -> int:
        """Count the executors that could take the task if they had room."""
        return self._registry.capable(key.namespace, task.key, task.selector)

    def carry_out(self, pending: Pending) -> None:
        """Do what a durable append asks for."""
        run = pending.run
        for command in pending.commands:
            self._carry_out(run, command)

    def _carry_out(self, run: LiveRun, command: Command) -> None:
        match command:
            case Send():
                self._send(run, command)
            case AttemptOver():
                self._attempt_over(run, command)
            case Enqueue():
                self._waiting.add(run.key, command.task)
                # Room may have been found meanwhile, or those that wait in front may be over.
                self._plan_dispatch()
            case StopAttempt():
                self._stop(run, command)
            case Yield():
                loop = asyncio.get_running_loop()
                loop.call_soon(self.runner.deliver, run.key, Delivery(happened=GoOn()))

    def _send(self, run: LiveRun, command: Send) -> None:
        key, task = run.key, command.task
        seat = self._registry.find(key.namespace, command.executor_id, command.instance)
        state = run.state
        current = state.tasks.get(task.id) if state is not None else None
        if (
            current is not task
            or task.attempt != command.attempt
            or task.status is not TaskStatus.ASSIGNED
        ):
            # It ended while its assignment was being written; the executor never sees it.
            if seat is not None:
                self._free(seat, f"{key.run_id}/{task.id}", command.attempt)
            return
        instance = (key.namespace, command.instance)
        self._assigned.setdefault(instance, set()).add((key, task.id, command.attempt))
        if seat is None:
            # Its stream is lost. Should the executor come back, it does not list the attempt, and loses it then.
            return
        assert state is not None
        self._tasks_out.setdefault(seat, []).append(task_frame(state, task))

    def _attempt_over(self, run: LiveRun, command: AttemptOver) -> None:
        key = run.key
        known = self._assigned.get((key.namespace, command.instance))
        if known is not None:
            known.discard((key, command.task_id, command.attempt))
        self._hub.task_ended(key, command.task_id, command.attempt, discarded=command.discarded)

    def _stop(self, run: LiveRun, command: StopAttempt) -> None:
        seat = self._registry.find(run.key.namespace, command.executor_id, command.instance)
        if seat is not None:
            self._flush_tasks(seat)
            full_id = f"{run.key.run_id}/{command.task_id}"
            ref = executor_service_pb2.AttemptRef(task_id=full_id, attempt=command.attempt)
            seat.outlet.send_cancels([ref], command.reason, self._limits.cancel_grace)

    def undo(self, pending: Pending) -> None:
        """Free the slots that were reserved for an append that failed."""
        key = pending.run.key
        for command in pending.commands:
            if isinstance(command, Send):
                seat = self._registry.find(key.namespace, command.executor_id, command.instance)
                if seat is not None:
                    self._free(seat, f"{key.run_id}/{command.task.id}", command.attempt)

    def _free(self, seat: Seat, full_id: str, attempt: int) -> None:
        slots = self._slots.get(seat)
        if slots is not None and (full_id, attempt) in slots:
            slots.discard((full_id, attempt))
            self._registry.release(seat)

    def acknowledge(self, delivery: Delivery, acks: Iterable[Ack]) -> None:
        """Tell the executor that reported results what became of them."""
        happened = delivery.happened
        assert isinstance(happened, Outcomes)
        seat = happened.source
        if seat is not None:
            self._acks_out.setdefault(seat, []).extend(acks)  # type: ignore[arg-type]  # the core knows no seats

    def flush(self) -> None:
        """Send everything that is ready: acknowledgements before tasks, so that an executor frees its slots first."""
        for seat, acks in self._acks_out.items():
            seat.outlet.send_acks(acks)
            self.counts.count_acks(acks)
        self._acks_out.clear()
        for seat, tasks in self._tasks_out.items():
            seat.outlet.send_tasks(tasks)
            self.counts.sent += len(tasks)
        self._tasks_out.clear()

    def _flush_tasks(self, seat: Seat) -> None:
        tasks = self._tasks_out.pop(seat, None)
        if tasks:
            seat.outlet.send_tasks(tasks)

    def recovered(self, run: LiveRun) -> None:
        """Take up what is outstanding of a run that was folded from its journal."""
        state = run.state
        assert state is not None
        key, now = run.key, self._clock.now()
        unsent: list[AttemptRef] = []
        for task in state.tasks.values():
            if task.status is TaskStatus.ASSIGNED:
                # Who has it either lists it when it connects or has lost it: no accept limit is needed for that.
                task.accepted = True
                attempt = (key, task.id, task.attempt)
                known = self._assigned.setdefault((key.namespace, task.instance), set())
                seat = self._registry.find(key.namespace, task.executor_id, task.instance)
                if seat is None:
                    known.add(attempt)
                    self._registry.expect(key.namespace, task.executor_id, task.instance, now)
                elif (f"{key.run_id}/{task.id}", task.attempt) in self._slots.get(seat, ()):
                    known.add(attempt)
                elif attempt not in known:
                    # It was assigned, but its frame never left.
                    unsent.append(AttemptRef(task_id=task.id, attempt=task.attempt))
            elif task.status is TaskStatus.QUEUED:
                self._waiting.add(key, task)
        if unsent:
            lost = AttemptsLost(attempts=tuple(unsent), reason=event_pb2.TASK_LOSS_REASON_FORGOTTEN)
            run.inbox.appendleft(Delivery(happened=lost))
        self._plan_dispatch()

    # What executors say: the port `Work`

    async def joined(
        self,
        seat: Seat,
        held: Sequence[executor_service_pb2.AttemptRef],
        unacknowledged: Sequence[executor_service_pb2.AttemptRef],
    ) -> Wanted:
        """Say what is still wanted of an executor that has connected."""
        instance = (seat.namespace, seat.instance)
        wanted = [ref for ref in held if await self._is_wanted(seat, ref)]
        results = [ref for ref in unacknowledged if await self._is_wanted(seat, ref)]
        for old in [
            other
            for other in self._slots
            if other.placement == seat.placement and other is not seat
        ]:
            del self._slots[old]
        self._slots[seat] = {(ref.task_id, ref.attempt) for ref in wanted}
        listed = {(*split_task_id(ref.task_id), ref.attempt) for ref in (*wanted, *results)}
        missing = [
            attempt
            for attempt in self._assigned.get(instance, set())
            if (attempt[0].run_id, attempt[1], attempt[2]) not in listed
        ]
        self._lose(
            missing,
            event_pb2.TASK_LOSS_REASON_FORGOTTEN,
            f"executor {seat.executor_id} came back without it",
        )
        return Wanted(attempts=wanted, results=results)

    async def _is_wanted(self, seat: Seat, ref: executor_service_pb2.AttemptRef) -> bool:
        run_id, task_id = split_task_id(ref.task_id)
        try:
            run = await self.runner.settled(RunKey(seat.namespace, run_id))
        except Refused:
            return False
        task = run.state.tasks.get(task_id) if run.state is not None else None
        return (
            task is not None
            and task.status is TaskStatus.ASSIGNED
            and task.attempt == ref.attempt
            and task.instance == seat.instance
        )

    def lost(self, lost: LostInstance) -> None:
        """All attempts of an instance are lost."""
        attempts = self._assigned.pop((lost.namespace, lost.instance), set())
        for seat in [seat for seat in self._slots if seat.instance == lost.instance]:
            del self._slots[seat]
        self._lose(attempts, lost.reason, lost.message)

    def _lose(
        self,
        attempts: Iterable[AttemptKey],
        reason: event_pb2.TaskLossReason.ValueType,
        message: str,
    ) -> None:
        by_run: dict[RunKey, list[AttemptRef]] = {}
        for key, task_id, attempt in attempts:
            by_run.setdefault(key, []).append(AttemptRef(task_id=task_id, attempt=attempt))
        for key, refs in by_run.items():
            happened = AttemptsLost(attempts=tuple(refs), reason=reason, message=message)
            self.runner.deliver(key, Delivery(happened=happened, keep=True))

    def accepted(self, seat: Seat, attempts: Sequence[executor_service_pb2.AttemptRef]) -> None:
        """Attempts have arrived."""
        for ref in attempts:
            run_id, task_id = split_task_id(ref.task_id)
            run = self.runner.live(RunKey(seat.namespace, run_id))
            if run is not None and run.state is not None:
                note_accepted(run.state, AttemptRef(task_id=task_id, attempt=ref.attempt))

    def outcomes(self, seat: Seat, outcomes: Sequence[executor_service_pb2.AttemptOutcome]) -> None:
        """Attempts have ended: one decision for each run that the frame concerns."""
        by_run: dict[str, list[tuple[str, executor_service_pb2.AttemptOutcome]]] = {}
        for outcome in outcomes:
            run_id, task_id = split_task_id(outcome.task_id)
            by_run.setdefault(run_id, []).append((task_id, outcome))
            self._free(seat, outcome.task_id, outcome.attempt)
        for run_id, items in by_run.items():
            happened = Outcomes(instance=seat.instance, outcomes=tuple(items), source=seat)
            self.runner.deliver(
                RunKey(seat.namespace, run_id), Delivery(happened=happened, keep=True)
            )

    def progress(self, seat: Seat, items: Sequence[executor_service_pb2.AttemptProgress]) -> None:
        """Attempts show progress: watchers see it, and an idle limit starts anew."""
        now = self._clock.now()
        for item in items:
            run_id, task_id = split_task_id(item.task_id)
            key = RunKey(seat.namespace, run_id)
            run = self.runner.live(key)
            if run is None or run.state is None:
                continue
            if (
                note_progress(run.state, AttemptRef(task_id=task_id, attempt=item.attempt), now)
                and item.progress
            ):
                shown = [
                    event_pb2.TransientEvent(
                        task_id=task_id, attempt=item.attempt, progress=progress
                    )
                    for progress in item.progress
                ]
                self._hub.publish_transient(
                    key, [(task_id, item.attempt, event.SerializeToString()) for event in shown]
                )

    def rejected(
        self, seat: Seat, attempt: executor_service_pb2.AttemptRef, reason: str, message: str
    ) -> None:
        """An executor does not take an attempt."""
        self._free(seat, attempt.task_id, attempt.attempt)
        run_id, task_id = split_task_id(attempt.task_id)
        happened = AttemptsLost(
            attempts=(AttemptRef(task_id=task_id, attempt=attempt.attempt),),
            reason=event_pb2.TASK_LOSS_REASON_REJECTED,
            message=f"executor {seat.executor_id} rejected it: {reason} {message}",
        )
        self.runner.deliver(RunKey(seat.namespace, run_id), Delivery(happened=happened, keep=True))

    # Room

    def room(self, seat: Seat) -> None:
        """Note that an executor may take work that it could not take before."""
        if self._waiting.of_namespace(seat.namespace):
            self._plan_dispatch()

    def _plan_dispatch(self) -> None:
        if not self._dispatch_planned and len(self._waiting):
            self._dispatch_planned = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        """Hand out what waits, as far as there is room: runs take turns, each gives its oldest task first."""
        self._dispatch_planned = False
        ready: dict[RunKey, list[str]] = {}
        for queue in self._waiting.queues():
            room = self._registry.room(queue.namespace, queue.requirement, queue.selector)
            for key, task_id in queue.take(room):
                ready.setdefault(key, []).append(task_id)
        self._handing_out = True
        try:
            for key, task_ids in ready.items():
                self.runner.deliver(key, Delivery(happened=RoomFound(task_ids=tuple(task_ids))))
        finally:
            self._handing_out = False


class Counts:
    """The dispatcher's own counters, which metrics read."""

    __slots__ = ("accepted", "other", "sent", "stale")

    def __init__(self) -> None:
        self.sent = 0
        self.accepted = 0
        self.stale = 0
        self.other = 0

    def count_acks(self, acks: Sequence[Ack]) -> None:
        """Count verdicts."""
        for _, _, verdict in acks:
            if verdict == executor_service_pb2.ACK_VERDICT_ACCEPTED:
                self.accepted += 1
            elif verdict == executor_service_pb2.ACK_VERDICT_STALE:
                self.stale += 1
            else:
                self.other += 1
