"""Child runs: created for their parents, told what these wish, and heard of by them.

Rules: everything here is asked for by events that are durable, and may be asked for again: a child run is created if there is none, what
is said of it is said until its parent has recorded it, and after a restart the rows say what was not heard of. So there is nothing to
remember here; what is kept in memory only saves asking twice.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from stepgraph.v1 import failure_pb2, run_pb2
from stepgraph_server.core.children import ChildPlan, plan_of, run_started, seen_of
from stepgraph_server.core.errors import GraphInvalid, Quarantined, Refused, StepgraphError
from stepgraph_server.core.failures import CODES, failure
from stepgraph_server.core.inputs import (
    Cancel,
    ChildRefused,
    ChildSeen,
    Resolve,
    Start,
    StartChild,
    TellChild,
    TellParent,
)
from stepgraph_server.core.preparing import prepare
from stepgraph_server.core.references import Reference
from stepgraph_server.core.run import live_status, new_state
from stepgraph_server.core.state import TaskStatus
from stepgraph_server.core.tasks import child_run_id
from stepgraph_server.engine.live import Delivery, FutureReply, LiveRun
from stepgraph_server.engine.references import resolve
from stepgraph_server.storage.errors import JournalUnavailable, RunExists
from stepgraph_server.storage.records import RunCreation, RunKey

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from stepgraph_server.core.actions.step import Child
    from stepgraph_server.core.graph import CompiledGraph
    from stepgraph_server.core.inputs import RunLimits
    from stepgraph_server.core.instants import Instant
    from stepgraph_server.core.state import Task
    from stepgraph_server.engine.clock import Clock
    from stepgraph_server.engine.graph_cache import GraphCache
    from stepgraph_server.engine.runner import Runner
    from stepgraph_server.storage.records import RunRecord
    from stepgraph_server.storage.store import Store

#: Child runs that are created at a time. One reply may want ten thousand, and other runs go on meanwhile.
MAX_CREATING: Final = 32
#: Trees of runs whose size is remembered.
MAX_TREES: Final = 1_024
#: Child runs of which is remembered what their parents were told when they were read.
MAX_TOLD: Final = 16_384
#: Delays before a store that could not be read or written is asked again; each is twice the one before.
_FIRST_DELAY_S: Final = 0.05
_MAX_DELAY_S: Final = 5.0
_MAX_DOUBLINGS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A child run that is to be there."""

    key: RunKey
    parent: RunKey
    task_id: str
    plan: ChildPlan
    traceparent: str
    tracestate: str


class _Expected(NamedTuple):
    """A child run as its parent knew it when it was read, with what the parent wishes of it."""

    key: RunKey
    #: Where the parent's journal ended.
    sequence: int
    is_started: bool
    waits: bool
    is_to_stop: bool
    is_to_pause: bool

    def is_so(self, status: int) -> bool:
        """Whether neither has anything to learn of the other."""
        return (
            self.is_started
            and not self.is_to_stop
            and self.waits == (status == run_pb2.RUN_STATUS_SUSPENDED)
            and self.is_to_pause == (status == run_pb2.RUN_STATUS_PAUSED)
        )


class Children:
    """The child runs of all runs."""

    def __init__(
        self,
        *,
        store: Store,
        graphs: GraphCache,
        runner: Runner,
        clock: Clock,
        limits: RunLimits,
        spawn: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        self._store = store
        self._graphs = graphs
        self._runner = runner
        self._clock = clock
        self._limits = limits
        self._spawn = spawn
        #: Child runs that are being created.
        self._coming: set[RunKey] = set()
        self._creating: Final = asyncio.Semaphore(MAX_CREATING)
        #: How many runs a tree has, by its root.
        self._sizes: OrderedDict[RunKey, int] = OrderedDict()
        #: By child run: where its journal and its parent's ended when the parent was last told of it for having been read.
        self._told: OrderedDict[RunKey, tuple[int, int]] = OrderedDict()

    # What runs ask for

    def carry_out(self, run: LiveRun, command: StartChild | TellChild | TellParent) -> None:
        """Do what a durable append asks for."""
        match command:
            case StartChild():
                self._start(run, command.task)
            case TellChild():
                self._tell_child(run.key, command)
            case TellParent():
                parent = RunKey(run.key.namespace, command.parent_run_id)
                self._say(parent, command.seen)

    def recovered(self, run: LiveRun) -> None:
        """Take up a run that was folded from its journal: tell its parent how it is, and look for its own child runs."""
        state, key = run.state, run.key
        assert state is not None
        if state.parent is not None:
            state.status = live_status(state)
            self._say(RunKey(key.namespace, state.parent.run_id), seen_of(state))
        # Named now: a run that waits for people is let go before it is heard of them.
        expected = {
            task.id: _Expected(
                key=RunKey(key.namespace, child_run_id(state, task)),
                sequence=state.sequence,
                is_started=task.child_started,
                waits=task.child_waits,
                is_to_stop=state.stopping is not None,
                is_to_pause=state.paused,
            )
            for task in state.tasks.values()
            if task.status is TaskStatus.CHILD
        }
        if expected:
            self._spawn(self._look_for(key, expected))

    def abandoned(self, key: RunKey) -> None:
        """Tell the parent of a run that nothing acts on any more, if it has one."""
        if not self._runner.closing:
            self._spawn(self._tell_of_abandoned(key))

    # Creating

    def _start(self, run: LiveRun, task: Task) -> None:
        state, key = run.state, run.key
        if state is None or state.tasks.get(task.id) is not task:
            # It ended while it was being written, or the run is being read again, and then asks again.
            return
        child: Child = prepare(state, task)  # type: ignore[assignment]  # what such a task is prepared with
        plan = plan_of(state, task, child)
        trace = self._runner.trace_of(run)
        wanted = _Wanted(
            key=RunKey(key.namespace, plan.run_id),
            parent=key,
            task_id=task.id,
            plan=plan,
            traceparent=trace.node_traceparent(task.activation.id),
            tracestate=state.tracestate,
        )
        if wanted.key not in self._coming:
            self._coming.add(wanted.key)
            self._spawn(self._create(wanted))

    async def _create(self, wanted: _Wanted) -> None:
        """Create a child run, however long the store can't be written; or tell its parent why there will be none."""
        try:
            async with self._creating:
                await self._persist(lambda: self._make(wanted))
        except StepgraphError as error:
            self._refuse(wanted.parent, wanted.task_id, _why_not(error, wanted.task_id))
        finally:
            self._coming.discard(wanted.key)

    async def _make(self, wanted: _Wanted) -> None:
        while True:
            try:
                await self._try(wanted)
            except RunExists:
                if not await self._is_there(wanted.key):
                    # It was looked for before it was there, to be told something, and so its id was in use.
                    continue
                await self._look(wanted.parent, wanted.task_id, wanted.key)
            return

    async def _is_there(self, key: RunKey) -> bool:
        """Whether there is a run, once whatever is under way with its id has been reported."""
        try:
            await self._runner.settled(key)
        except (Refused, Quarantined) as error:
            return isinstance(error, Quarantined)
        return True

    async def _persist(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        tries = 0
        while not self._runner.closing:
            try:
                await work()
            except JournalUnavailable:
                tries += 1
                delay = _FIRST_DELAY_S * 2.0 ** min(tries - 1, _MAX_DOUBLINGS)
                await asyncio.sleep(min(delay, _MAX_DELAY_S))
            else:
                return

    async def _try(self, wanted: _Wanted) -> None:
        namespace = wanted.key.namespace
        version, graph, resolved = await self._graph(namespace, wanted.plan)
        root = RunKey(namespace, wanted.plan.root_run_id)
        size = await self._size(root)
        if not self._is_wanted(wanted):
            raise _NoChildError(_cancelled())
        if size >= self._limits.max_runs_per_root:
            raise _NoChildError(self._too_large(wanted.plan.root_run_id))
        plan, now = replace(wanted.plan, resolved=resolved), self._clock.now()
        started = run_started(
            plan,
            version,
            graph,
            now,
            traceparent=wanted.traceparent,
            tracestate=wanted.tracestate,
        )
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        delivery = Delivery(
            happened=Start(started=started),
            reply=FutureReply(waiter, lambda _: True),
            creation=_creation(plan, version, now),
        )
        self._sizes[root] = size + 1
        try:
            self._runner.create(wanted.key, new_state(plan.run_id, graph, now), delivery)
            await waiter
        except BaseException:
            self._sizes.pop(root, None)
            raise

    def _is_wanted(self, wanted: _Wanted) -> bool:
        """Whether the parent still waits for a child run. One that is being read again says so when it has been."""
        run = self._runner.live(wanted.parent)
        state = run.state if run is not None else None
        if state is None:
            return True
        return state.stopping is None and wanted.task_id in state.tasks

    def _too_large(self, root_run_id: str) -> failure_pb2.Failure:
        limit = self._limits.max_runs_per_root
        message = f"root {root_run_id} and the runs below it are {limit} already, the most there may be; spread the work over several roots"
        return failure("RUN_TREE_TOO_LARGE", message, details={"max_runs": str(limit)})

    async def _size(self, root: RunKey) -> int:
        """Return how many runs a tree has, those that are being created included."""
        if root in self._sizes:
            return self._sizes[root]
        found = await self._store.runs.count_tree(root)
        # Another may have asked meanwhile, and have added to it.
        size = self._sizes.setdefault(root, found)
        if len(self._sizes) > MAX_TREES:
            self._sizes.popitem(last=False)
        return size

    async def _graph(
        self, namespace: str, plan: ChildPlan
    ) -> tuple[run_pb2.GraphVersion, CompiledGraph, Mapping[str, run_pb2.GraphVersion]]:
        """Return the graph that a child run walks, and what references stand for below it."""
        ref = plan.graph
        match ref.WhichOneof("kind"):
            case "reference":
                named = [Reference(path="graph_ref.reference", reference=ref.reference)]
                resolved = await self._resolved(namespace, plan, named)
                version = resolved[ref.reference]
                return version, await self._graphs.by_digest(namespace, version.digest), resolved
            case "definition":
                graph = self._graphs.compile(ref.definition)
                resolved = await self._resolved(namespace, plan, graph.references)
                await self._graphs.keep(namespace, graph, self._clock.now())
                return run_pb2.GraphVersion(digest=graph.digest), graph, resolved
            case _:
                version = plan.parent_graph
                graph = await self._graphs.by_digest(namespace, version.digest)
                return version, graph, plan.resolved

    async def _resolved(
        self, namespace: str, plan: ChildPlan, references: tuple[Reference, ...] | list[Reference]
    ) -> Mapping[str, run_pb2.GraphVersion]:
        """Return what references stand for. What the tree does not know yet is fixed by its root, for all of it."""
        found = await resolve(self._graphs, namespace, references, plan.resolved)
        if not found:
            return plan.resolved
        waiter: asyncio.Future[dict[str, run_pb2.GraphVersion]] = (
            asyncio.get_running_loop().create_future()
        )
        reply = FutureReply(waiter, _resolved_of)
        delivery = Delivery(happened=Resolve(graphs=found), reply=reply)
        self._runner.deliver(RunKey(namespace, plan.root_run_id), delivery)
        # Another run of the tree may have been first; then its versions count.
        return {**await waiter, **plan.resolved}

    # Telling

    def _say(self, parent: RunKey, seen: ChildSeen | ChildRefused) -> None:
        self._runner.deliver(parent, Delivery(happened=seen, keep=True))

    def _refuse(self, parent: RunKey, task_id: str, why: failure_pb2.Failure) -> None:
        self._say(parent, ChildRefused(task_id=task_id, failure=why))

    def _tell_child(self, parent: RunKey, command: TellChild) -> None:
        key = RunKey(parent.namespace, command.run_id)
        told = _Told(lambda: self._not_there(parent, command, key))
        self._runner.deliver(key, Delivery(happened=command.happened, reply=told, keep=True))

    def _not_there(self, parent: RunKey, command: TellChild, key: RunKey) -> None:
        """Take note that there is no child run to tell. If it is being created, it shows itself, and is told then."""
        if isinstance(command.happened, Cancel) and key not in self._coming:
            self._refuse(parent, command.task_id, _cancelled())

    # Looking

    async def _look_for(self, parent: RunKey, expected: Mapping[str, _Expected]) -> None:
        """Find out about the child runs of a run that was read from its journal."""
        for task_id, each in expected.items():
            if each.key not in self._coming:
                await self._persist(partial(self._look, parent, task_id, each.key, each))

    async def _look(
        self, parent: RunKey, task_id: str, key: RunKey, expected: _Expected | None = None
    ) -> None:
        """Tell a parent of its child run what the row says, or have it created if there is no row."""
        record = await self._store.runs.get(key)
        if record is None:
            self._start_again(parent, task_id, key)
        elif record.creation.parent != _parent_bytes(parent, task_id):
            self._refuse(parent, task_id, _taken(key.run_id))
        elif record.quarantined:
            self._refuse(parent, task_id, _unreadable(key.run_id))
        elif record.is_final:
            await self._tell_end(parent, task_id, key, record)
        elif self._runner.live(key) is None and self._is_news(key, record, expected):
            # One in memory has told, and may be further than its row was when it was read.
            self._say(parent, _seen_of_row(task_id, key, record))

    def _is_news(self, key: RunKey, record: RunRecord, expected: _Expected | None) -> bool:
        """Whether to tell a parent of a child run that goes on.

        A parent that waits for people is read again to be told, and looks for its child runs again then: of what it knows it must
        hear no more, or that would never end.
        """
        if expected is None:
            return True
        ends = record.progress.last_sequence, expected.sequence
        if expected.is_so(record.progress.status) or self._told.get(key) == ends:
            return False
        self._told[key] = ends
        self._told.move_to_end(key)
        if len(self._told) > MAX_TOLD:
            self._told.popitem(last=False)
        return True

    def _start_again(self, parent: RunKey, task_id: str, key: RunKey) -> None:
        run = self._runner.live(parent)
        state = run.state if run is not None else None
        task = state.tasks.get(task_id) if state is not None else None
        if run is None or state is None or task is None or key in self._coming:
            return
        if state.stopping is not None:
            self._refuse(parent, task_id, _cancelled())
        else:
            self._start(run, task)

    async def _tell_end(self, parent: RunKey, task_id: str, key: RunKey, record: RunRecord) -> None:
        try:
            state = await self._runner.folder.fold_until(key, record, None)
        except Quarantined:
            self._refuse(parent, task_id, _unreadable(key.run_id))
        else:
            self._say(parent, seen_of(state))

    async def _tell_of_abandoned(self, key: RunKey) -> None:
        async def tell() -> None:
            record = await self._store.runs.get(key)
            if record is not None and record.creation.parent:
                parent = run_pb2.RunParent.FromString(record.creation.parent)
                above = RunKey(key.namespace, parent.run_id)
                self._refuse(above, parent.task_id, _unreadable(key.run_id))

        await self._persist(tell)


class _NoChildError(StepgraphError):
    """There will be no child run, and the failure says why."""

    def __init__(self, why: failure_pb2.Failure) -> None:
        super().__init__(why.message)
        self.failure = why


class _Told:
    """Waits for what becomes of a wish: all that matters is whether there is a run to wish it of."""

    __slots__ = ("_not_there",)

    def __init__(self, not_there: Callable[[], None]) -> None:
        self._not_there = not_there

    def decided(self, run: LiveRun) -> None:
        """See Reply."""

    def done(self) -> None:
        """See Reply."""

    def failed(self, error: Exception) -> None:
        """See Reply. A run that has ended, or is about to, has told its parent."""
        if isinstance(error, Refused) and error.reason == "RUN_NOT_FOUND":
            self._not_there()


def _creation(plan: ChildPlan, version: run_pb2.GraphVersion, now: Instant) -> RunCreation:
    return RunCreation(
        graph_digest=version.digest,
        graph_name=version.name,
        graph_version=version.version,
        create_time=now,
        parent=plan.parent.SerializeToString(deterministic=True),
        parent_run_id=plan.parent.run_id,
        root_run_id=plan.root_run_id,
    )


def _parent_bytes(parent: RunKey, task_id: str) -> bytes:
    made = run_pb2.RunParent(run_id=parent.run_id, task_id=task_id)
    return made.SerializeToString(deterministic=True)


def _seen_of_row(task_id: str, key: RunKey, record: RunRecord) -> ChildSeen:
    creation = record.creation
    return ChildSeen(
        task_id=task_id,
        run_id=key.run_id,
        graph=run_pb2.GraphVersion(
            name=creation.graph_name, version=creation.graph_version, digest=creation.graph_digest
        ),
        status=record.progress.status,
        end=None,
    )


def _resolved_of(run: LiveRun) -> dict[str, run_pb2.GraphVersion]:
    assert run.state is not None
    return dict(run.state.resolved)


def _why_not(error: StepgraphError, task_id: str) -> failure_pb2.Failure:
    match error:
        case _NoChildError():
            return error.failure
        case GraphInvalid():
            return failure("GRAPH_INVALID", str(error), source=task_id)
        case Quarantined():
            return failure("RUN_QUARANTINED", str(error), source=task_id)
        case Refused() if error.reason in CODES:
            return failure(error.reason, error.message, source=task_id, details=error.metadata)
        case _:
            # Too many graphs: all else that is refused here has a code of its own.
            return failure("RUN_TREE_TOO_LARGE", str(error), source=task_id)


def _cancelled() -> failure_pb2.Failure:
    return failure("CANCELLED", "the child run was not wanted any more before it was there")


def _taken(run_id: str) -> failure_pb2.Failure:
    message = (
        f"there is a run {run_id} that is not its child; whoever started it chose the id of another"
    )
    return failure("RUN_EXISTS", message, details={"child_run_id": run_id})


def _unreadable(run_id: str) -> failure_pb2.Failure:
    message = (
        f"the journal of child run {run_id} can't be read by this server, so nothing acts on it"
    )
    return failure("RUN_QUARANTINED", message, details={"child_run_id": run_id})
