"""Tasks on their way to executors, and what executors say on its way to runs.

Rules: nothing is sent before it is durable: the runner calls `carry_out` then, and `flush` once per commit, so that each
executor gets one frame with all that is ready. A slot of an executor stays taken until the executor reports the attempt, or
its session ends; that an attempt is over for its run does not free it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2, executor_service_pb2
from stepgraph_server.core.errors import StepgraphError
from stepgraph_server.core.inputs import (
    AttemptOver,
    AttemptRef,
    AttemptsLost,
    Enqueue,
    GoOn,
    Outcomes,
    RoomFound,
    Send,
    StartChild,
    StopAttempt,
    TellChild,
    TellParent,
    Yield,
)
from stepgraph_server.core.state import TaskStatus
from stepgraph_server.core.tasks import note_accepted, note_progress
from stepgraph_server.engine.holdings import Holdings
from stepgraph_server.engine.live import Delivery
from stepgraph_server.engine.reports import Reports
from stepgraph_server.engine.task_frames import task_frame
from stepgraph_server.engine.waiting import WaitingTasks
from stepgraph_server.engine.world import RunWorld
from stepgraph_server.executors.port import split_task_id
from stepgraph_server.executors.seats import Wanted
from stepgraph_server.storage.records import RunKey

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from stepgraph_server.core.inputs import Command, Placement, RunLimits
    from stepgraph_server.core.state import Task
    from stepgraph_server.engine.children import Children
    from stepgraph_server.engine.clock import Clock
    from stepgraph_server.engine.holdings import Attempt
    from stepgraph_server.engine.live import LiveRun
    from stepgraph_server.engine.runner import Runner
    from stepgraph_server.engine.waiting import Queue
    from stepgraph_server.engine.watch import WatchHub
    from stepgraph_server.executors.catalogue import Catalogue
    from stepgraph_server.executors.registry import Registry
    from stepgraph_server.executors.seats import Ack, LostInstance, Seat
    from stepgraph_server.storage.interrupts import Interrupts
    from stepgraph_server.storage.values import Values


class Dispatcher:
    """Between runs and executors."""

    def __init__(  # noqa: PLR0913  # the composition root passes each dependency by name
        self,
        *,
        registry: Registry,
        catalogue: Catalogue,
        hub: WatchHub,
        clock: Clock,
        limits: RunLimits,
        jitter: Callable[[], float],
        values: Values,
        interrupts: Interrupts,
        spawn: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        self._registry = registry
        self._catalogue = catalogue
        self._hub = hub
        self._clock = clock
        self._limits = limits
        self._jitter = jitter
        self._runner: Runner | None = None
        self._children: Children | None = None
        self._waiting = WaitingTasks()
        self.holdings = Holdings(registry)
        self._tasks_out: dict[Seat, list[bytes]] = {}
        self._acks_out: dict[Seat, list[Ack]] = {}
        self._reports = Reports(values, interrupts, spawn)
        self._dispatch_planned = False
        #: What was taken from a queue is being placed, so the queue's order is kept by placing it at once.
        self._handing_out = False
        self.counts = Counts()

    def attach(self, runner: Runner, children: Children) -> None:
        """Say where inputs of runs go, and who has their child runs. Called once, by the composition root."""
        self._runner, self._children = runner, children

    @property
    def runner(self) -> Runner:
        """The runner."""
        assert self._runner is not None, "attach was not called"
        return self._runner

    @property
    def children(self) -> Children:
        """Whoever has the child runs."""
        assert self._children is not None, "attach was not called"
        return self._children

    @property
    def waiting(self) -> WaitingTasks:
        """Tasks that wait for an executor with room."""
        return self._waiting

    # What runs ask for

    def world(self, key: RunKey) -> RunWorld:
        """Return the world as a run sees it."""
        return RunWorld(
            key=key,
            places=self,
            catalogue=self._catalogue,
            limits=self._limits,
            jitter=self._jitter,
        )

    def place(self, key: RunKey, task: Task) -> Placement | None:
        """Reserve a slot for the next attempt of a task; None if no executor has room, or others wait for it."""
        if not self._handing_out and self._waiting.has(key.namespace, task.key, task.selector):
            return None
        seat = self.holdings.reserve(key, task)
        return None if seat is None else seat.placement

    def capable(self, key: RunKey, task: Task) -> int:
        """Count the executors that could take the task if they had room."""
        return self._registry.capable(key.namespace, task.key, task.selector)

    def carry_out(self, run: LiveRun, commands: list[Command]) -> None:
        """Do what a durable append asks for."""
        for command in commands:
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
            case StartChild() | TellChild() | TellParent():
                self.children.carry_out(run, command)
            case Yield():
                asyncio.get_running_loop().call_soon(self._go_on, run)

    def _go_on(self, run: LiveRun) -> None:
        # Meanwhile it may have ended; it must not be read again for that.
        if self.runner.live(run.key) is run:
            self.runner.deliver(run.key, Delivery(happened=GoOn()))

    def _send(self, run: LiveRun, command: Send) -> None:
        key, task = run.key, command.task
        seat = self._registry.find(key.namespace, command.executor_id, command.instance)
        state = run.state
        attempt = (f"{key.run_id}/{task.id}", command.attempt)
        if (
            state is None
            or state.tasks.get(task.id) is not task
            or task.attempt != command.attempt
            or task.status is not TaskStatus.ASSIGNED
        ):
            # It ended while its assignment was being written; the executor never sees it.
            if seat is not None:
                self.holdings.free(seat, attempt)
            return
        if seat is None or not self.holdings.has_slot(seat, attempt):
            # The session that room was found in is over. Should the executor be back already, it was asked what it has
            # before this was durable, and another instance would never hear of it: so nobody else will say it is lost.
            message = f"the session of executor {command.executor_id} ended before it was sent"
            reason = event_pb2.TASK_LOSS_REASON_FORGOTTEN
            loop = asyncio.get_running_loop()
            loop.call_soon(self._lose, key.namespace, [attempt], reason, message)
            return
        assert run.trace is not None, "the assignment was written"
        frame = task_frame(state, task, run.trace.traceparent(task.id, command.attempt))
        self.holdings.assigned(key.namespace, task, attempt)
        self._tasks_out.setdefault(seat, []).append(frame)

    def _attempt_over(self, run: LiveRun, command: AttemptOver) -> None:
        key = run.key
        attempt = (f"{key.run_id}/{command.task_id}", command.attempt)
        self.holdings.over(key.namespace, command.instance, attempt)
        self._hub.task_ended(key, command.task_id, command.attempt, discarded=command.discarded)

    def _stop(self, run: LiveRun, command: StopAttempt) -> None:
        seat = self._registry.find(run.key.namespace, command.executor_id, command.instance)
        if seat is not None:
            self._flush_tasks(seat)
            full_id = f"{run.key.run_id}/{command.task_id}"
            ref = executor_service_pb2.AttemptRef(task_id=full_id, attempt=command.attempt)
            seat.outlet.send_cancels([ref], command.reason, self._limits.cancel_grace)

    def undo(self, key: RunKey, commands: list[Command]) -> None:
        """Free the slots that were reserved for an append that failed."""
        for command in commands:
            if isinstance(command, Send):
                seat = self._registry.find(key.namespace, command.executor_id, command.instance)
                if seat is not None:
                    self.holdings.free(seat, (f"{key.run_id}/{command.task.id}", command.attempt))

    def over(self, key: RunKey) -> None:
        """Forget what waits for a run that is final."""
        self._waiting.forget(key)

    def abandon(self, key: RunKey) -> None:
        """Forget everything about a run; what executors are doing for it keeps its slots until they report it."""
        self._waiting.forget(key)
        self.holdings.forget_run(key)
        self._hub.end_run(key)
        self.children.abandoned(key)

    def acknowledge(self, delivery: Delivery, acks: Iterable[Ack]) -> None:
        """Tell the executor that reported results what became of them."""
        happened = delivery.happened
        assert isinstance(happened, Outcomes)
        seat = happened.source
        if seat is not None:
            self._acks_out.setdefault(seat, []).extend(acks)  # type: ignore[arg-type]  # the core knows no seats

    def flush(self) -> None:
        """Send everything that is ready: acknowledgements before tasks, so that an executor frees its memory first."""
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
        state, key = run.state, run.key
        assert state is not None
        # Those that waited before an append failed are among those that wait now.
        self._waiting.forget(key)
        unsent: list[AttemptRef] = []
        for task in state.tasks.values():
            if task.status is TaskStatus.ASSIGNED:
                # After a restart, who has it either lists it when it connects or has lost it: no accept limit is needed for
                # that. A run that was in memory goes on as it was.
                task.accepted = run.accepted is None or (task.id, task.attempt) in run.accepted
                if self._is_held(key, task):
                    attempt = (f"{key.run_id}/{task.id}", task.attempt)
                    self.holdings.assigned(key.namespace, task, attempt)
                else:
                    unsent.append(AttemptRef(task_id=task.id, attempt=task.attempt))
            elif task.status is TaskStatus.QUEUED and not (task.held or state.paused):
                task.waits = True
                self._waiting.add(key, task)
        if unsent:
            lost = AttemptsLost(attempts=tuple(unsent), reason=event_pb2.TASK_LOSS_REASON_FORGOTTEN)
            run.inbox.appendleft(Delivery(happened=lost, keep=True))
        self.children.recovered(run)
        self._plan_dispatch()

    def _is_held(self, key: RunKey, task: Task) -> bool:
        """Whether an executor has an attempt that is assigned to it, or may still say so."""
        seat = self._registry.find(key.namespace, task.executor_id, task.instance)
        if seat is None:
            now = self._clock.now()
            return self._registry.expect(key.namespace, task.executor_id, task.instance, now)
        if not seat.is_open:
            # It has said what it has, and is answered once the runs of all that are known.
            return True
        # Otherwise its frame never left; but one that was reported has given its slot back.
        attempt = (f"{key.run_id}/{task.id}", task.attempt)
        return self.holdings.has_slot(seat, attempt) or self.holdings.has(seat, attempt)

    # What executors say: the port `Work`

    async def joined(
        self,
        seat: Seat,
        held: Sequence[executor_service_pb2.AttemptRef],
        unacknowledged: Sequence[executor_service_pb2.AttemptRef],
    ) -> Wanted:
        """Say what is still wanted of an executor that has connected."""
        for run_id in {split_task_id(ref.task_id)[0]: None for ref in (*held, *unacknowledged)}:
            # Taking up the run tells who has its attempts. One that can't be taken up wants nothing.
            with contextlib.suppress(StepgraphError):
                await self.runner.settled(RunKey(seat.namespace, run_id))
        if self._registry.find(seat.namespace, seat.executor_id, seat.instance) is not seat:
            # It has gone meanwhile, or has come again: the newer session has the slots.
            return Wanted()
        # From here on nothing else happens, so the answer fits what it leaves behind.
        listed: set[Attempt] = set()
        wanted = [ref for ref in held if self._is_wanted(seat, ref, listed)]
        results = [ref for ref in unacknowledged if self._is_wanted(seat, ref, listed)]
        self.holdings.seated(seat, ((ref.task_id, ref.attempt) for ref in wanted))
        self._lose(
            seat.namespace,
            [attempt for attempt in self.holdings.of_seat(seat) if attempt not in listed],
            event_pb2.TASK_LOSS_REASON_FORGOTTEN,
            f"executor {seat.executor_id} came back without it",
        )
        self.accepted(seat, wanted)
        self._stop_again(seat, wanted)
        return Wanted(attempts=wanted, results=results)

    def _is_wanted(
        self, seat: Seat, ref: executor_service_pb2.AttemptRef, listed: set[Attempt]
    ) -> bool:
        """Whether the instance has this attempt; what it lists again counts once."""
        attempt = (ref.task_id, ref.attempt)
        if attempt in listed or not self.holdings.has(seat, attempt):
            return False
        listed.add(attempt)
        return True

    def _stop_again(self, seat: Seat, wanted: Iterable[executor_service_pb2.AttemptRef]) -> None:
        """Repeat what may have been lost with the last stream: that attempts are to be stopped."""
        for ref in wanted:
            run = self.runner.live(RunKey(seat.namespace, split_task_id(ref.task_id)[0]))
            stopping = run.state.stopping if run is not None and run.state is not None else None
            if stopping is not None:
                seat.outlet.send_cancels([ref], stopping.failure.message, self._limits.cancel_grace)

    def lost(self, lost: LostInstance) -> None:
        """All attempts of an instance are lost."""
        self._lose(lost.namespace, self.holdings.lose(lost), lost.reason, lost.message)

    def _lose(
        self,
        namespace: str,
        attempts: Iterable[Attempt],
        reason: event_pb2.TaskLossReason.ValueType,
        message: str,
    ) -> None:
        by_run: dict[str, list[AttemptRef]] = {}
        for full_id, number in attempts:
            run_id, task_id = split_task_id(full_id)
            by_run.setdefault(run_id, []).append(AttemptRef(task_id=task_id, attempt=number))
        for run_id, refs in by_run.items():
            happened = AttemptsLost(attempts=tuple(refs), reason=reason, message=message)
            key = RunKey(namespace, run_id)
            self.runner.deliver(key, Delivery(happened=happened, keep=True))

    def accepted(self, seat: Seat, attempts: Sequence[executor_service_pb2.AttemptRef]) -> None:
        """Attempts have arrived."""
        for ref in attempts:
            run_id, task_id = split_task_id(ref.task_id)
            run = self.runner.live(RunKey(seat.namespace, run_id))
            if run is None or not self.holdings.has(seat, (ref.task_id, ref.attempt)):
                continue
            if run.state is not None:
                note_accepted(run.state, AttemptRef(task_id=task_id, attempt=ref.attempt))
            elif run.accepted is not None:
                run.accepted.add((task_id, ref.attempt))

    def outcomes(self, seat: Seat, outcomes: Sequence[executor_service_pb2.AttemptOutcome]) -> None:
        """Attempts have ended: one decision for each run that the frame concerns."""
        self.holdings.free_all(seat, outcomes)
        self._serve_waiting()
        self._reports.take(self.runner, seat, outcomes)

    def progress(self, seat: Seat, items: Sequence[executor_service_pb2.AttemptProgress]) -> None:
        """Attempts show progress: watchers see it, and an idle limit starts anew."""
        now = self._clock.now()
        for item in items:
            run_id, task_id = split_task_id(item.task_id)
            key = RunKey(seat.namespace, run_id)
            run = self.runner.live(key)
            if (
                run is not None
                and run.state is not None
                and self.holdings.has(seat, (item.task_id, item.attempt))
                and note_progress(run.state, AttemptRef(task_id=task_id, attempt=item.attempt), now)
            ):
                self._show(key, task_id, item)

    def _show(self, key: RunKey, task_id: str, item: executor_service_pb2.AttemptProgress) -> None:
        shown = [
            event_pb2.TransientEvent(task_id=task_id, attempt=item.attempt, progress=progress)
            for progress in item.progress
        ]
        if shown:
            self._hub.publish_transient(
                key, [(task_id, item.attempt, event.SerializeToString()) for event in shown]
            )

    def rejected(
        self, seat: Seat, attempt: executor_service_pb2.AttemptRef, reason: str, message: str
    ) -> None:
        """An executor does not take an attempt."""
        rejected = (attempt.task_id, attempt.attempt)
        self.holdings.free(seat, rejected)
        self._serve_waiting()
        if self.holdings.has(seat, rejected):
            self._lose(
                seat.namespace,
                [rejected],
                event_pb2.TASK_LOSS_REASON_REJECTED,
                f"executor {seat.executor_id} rejected it: {reason} {message}",
            )

    # Room

    def room(self, seat: Seat) -> None:
        """Note that an executor may take work that it could not take before."""
        if self._waiting.of_namespace(seat.namespace):
            self._plan_dispatch()

    def _plan_dispatch(self) -> None:
        if not self._dispatch_planned and len(self._waiting):
            self._dispatch_planned = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _serve_waiting(self) -> None:
        """Give the room that was made to those that wait, before the runs that made it can take it again."""
        if self._dispatch_planned:
            self._dispatch()

    def _dispatch(self) -> None:
        """Hand out what waits, as far as there is room: runs take turns, each gives its oldest task first."""
        if not self._dispatch_planned:
            return  # it was done earlier than it was planned
        self._dispatch_planned = False
        self._handing_out = True
        try:
            for queue in self._waiting.queues():
                self._hand_out(queue)
        finally:
            self._handing_out = False

    def _hand_out(self, queue: Queue) -> None:
        room = self._registry.room(queue.namespace, queue.requirement, queue.selector)
        ready: dict[RunKey, list[str]] = {}
        for key, task_id in queue.take(room, self._still_waits):
            ready.setdefault(key, []).append(task_id)
        if ready:
            self._waiting.served(queue)
        for key, task_ids in ready.items():
            self.runner.deliver(key, Delivery(happened=RoomFound(task_ids=tuple(task_ids))))

    def _still_waits(self, key: RunKey, task_id: str) -> bool:
        run = self.runner.live(key)
        if run is None or run.state is None or run.failure is not None:
            return False  # it has ended, or says again what waits when it has been folded
        task = run.state.tasks.get(task_id)
        return task is not None and task.waits


class Counts:
    """The dispatcher's own counters, which metrics read."""

    __slots__ = ("sent", "verdicts")

    def __init__(self) -> None:
        self.sent = 0
        self.verdicts = dict.fromkeys(executor_service_pb2.AckVerdict.values()[1:], 0)

    def count_acks(self, acks: Sequence[Ack]) -> None:
        """Count verdicts."""
        for _, _, verdict in acks:
            self.verdicts[verdict] += 1
