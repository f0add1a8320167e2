"""The real engine, put together in memory, with eyes on what must never happen."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2, run_pb2, run_service_pb2
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.inputs import RunLimits
from stepgraph_server.core.instants import SECOND, Span
from stepgraph_server.core.policies import GraphDefaults, RetryPolicy
from stepgraph_server.engine.callers import Caller
from stepgraph_server.engine.children import Children
from stepgraph_server.engine.dispatcher import Dispatcher
from stepgraph_server.engine.engine import Engine
from stepgraph_server.engine.graph_cache import GraphCache
from stepgraph_server.engine.recovery import Recovery
from stepgraph_server.engine.runner import Runner
from stepgraph_server.executors.catalogue import Catalogue
from stepgraph_server.executors.port import split_task_id
from stepgraph_server.executors.registry import Registry
from stepgraph_server.storage.records import RunCreation, RunKey
from tests.support.engine_store import FaultyStore
from tests.support.engine_time import LoopClock, turns
from tests.support.graphs import graph

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Sequence

    from stepgraph.v1 import graph_pb2, task_pb2

NAMESPACE = "default"
LOST_GRACE = Span(30 * SECOND)


#: What a run may begin with.
MAX_START_BYTES = 64 * 1024


class Published:
    """A hub that remembers what it was shown, and checks that it is durable."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.batches: list[tuple[str, int, int, bool]] = []
        self.transient: list[tuple[str, int, str]] = []
        self.ended: list[tuple[str, int, bool]] = []
        self.ended_runs: list[str] = []

    def publish(
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
        begins = first_sequence == 1 or (creation is not None and bool(creation.origin))
        self._rig.check((creation is not None) == begins, "only a first batch has a creation")
        events = self._rig.store.events(key.run_id, key.namespace)
        self._rig.check(
            len(events) >= last_sequence and position > 0,
            f"event {last_sequence} of {key.run_id} was published before it was durable",
        )
        self._rig.check(bool(event_pb2.EventBatch.FromString(batch).events), "an empty batch")
        self.batches.append((key.run_id, first_sequence, last_sequence, terminal))

    def publish_transient(self, key: RunKey, events: Sequence[tuple[str, int, bytes]]) -> None:
        del key
        for task_id, attempt, data in events:
            event = event_pb2.TransientEvent.FromString(data)
            self.transient.append((task_id, attempt, event.progress.text.text))

    def task_ended(self, key: RunKey, task_id: str, attempt: int, *, discarded: bool) -> None:
        del key
        self.ended.append((task_id, attempt, discarded))

    def end_run(self, key: RunKey) -> None:
        self.ended_runs.append(key.run_id)


class Rig:
    """One engine on one store. Leave it, or let it crash, and start another one on the same store."""

    def __init__(self, store: FaultyStore, limits: RunLimits, lost_grace: Span) -> None:
        self.store = store
        self.clock = LoopClock()
        self.wrong: list[str] = []
        self.hub = Published(self)
        # The two need each other; nobody has room before the dispatcher is there.
        self.registry = Registry(lost_grace, lambda seat: self.dispatcher.room(seat))  # noqa: PLW0108
        self.dispatcher = Dispatcher(
            registry=self.registry,
            catalogue=Catalogue(self.registry),
            hub=self.hub,  # type: ignore[arg-type]  # it has what the engine calls
            clock=self.clock,
            limits=limits,
            jitter=lambda: 0.0,
            values=store.values,
            interrupts=store.interrupts,
            spawn=self.spawn,
        )
        defaults = GraphDefaults(retry=RetryPolicy(jitter=0.0))
        self.graphs = GraphCache(store.graphs, defaults)
        self._tasks: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup | None = None
        self.runner = Runner(
            store=store,
            graphs=self.graphs,
            clock=self.clock,
            acts=self.dispatcher,
            publisher=self.hub,
            spawn=self.spawn,
        )
        self.children = Children(
            store=store,
            graphs=self.graphs,
            runner=self.runner,
            clock=self.clock,
            limits=limits,
            spawn=self.spawn,
        )
        self.dispatcher.attach(self.runner, self.children)
        self._ids = 0
        self.engine = Engine(
            store=store,
            graphs=self.graphs,
            runner=self.runner,
            registry=self.registry,
            clock=self.clock,
            make_run_id=self._make_run_id,
            max_start_bytes=MAX_START_BYTES,
        )
        self.recovery = Recovery(
            runs=store.runs,
            runner=self.runner,
            dispatcher=self.dispatcher,
            registry=self.registry,
            clock=self.clock,
        )

    def _make_run_id(self) -> str:
        self._ids += 1
        return f"made-{self._ids}"

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Own a task of the engine's."""
        assert self._group is not None
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Rig]:
        """Run until it is left; then check that nothing happened that must never."""
        await self.store.start(self.runner.on_appended)
        async with asyncio.TaskGroup() as self._group:
            self.spawn(self.recovery.take_up(await self.recovery.recover()))
            self.spawn(self.recovery.watch_graces())
            try:
                yield self
            finally:
                self.runner.close()
                await self.store.close()
                for task in self._tasks:
                    task.cancel()
        assert not self.wrong, self.wrong

    def crash(self) -> None:
        """Stop as a process does that is killed: what is not durable is lost, and nobody hears of it."""
        self.store.journal.crash()

    # What must never happen

    def check(self, holds: bool, message: str) -> None:
        """Note something that must not be."""
        if not holds:
            self.wrong.append(message)

    def check_sent(self, namespace: str, task: task_pb2.Task) -> None:
        """Check that an attempt was assigned in the journal before it was sent."""
        run_id, task_id = split_task_id(task.task_id)
        for event in self.store.events(run_id, namespace):
            scheduled, assigned = event.task_scheduled, event.task_assigned
            if (task_id, task.attempt) in (
                (scheduled.task_id, scheduled.assignment.attempt),
                (assigned.task_id, assigned.assignment.attempt),
            ):
                return
        self.check(False, f"{task.task_id}#{task.attempt} was sent before it was durable")

    def check_recorded(self, namespace: str, full_id: str, attempt: int) -> None:
        """Check that the end of an attempt is in the journal before it is acknowledged."""
        run_id, task_id = split_task_id(full_id)
        for event in self.store.events(run_id, namespace):
            for fact in (event.task_completed, event.task_failed, event.task_cancelled):
                if (fact.task_id, fact.attempt) == (task_id, attempt):
                    return
        self.check(False, f"{full_id}#{attempt} was acknowledged before it was durable")

    # What tests do

    async def start(
        self, definition: graph_pb2.StateGraph, run_id: str = "r1", **fields: object
    ) -> run_pb2.Run:
        """Start a run."""
        request = run_service_pb2.StartRunRequest(run_id=run_id, **fields)  # type: ignore[arg-type]  # by name
        request.graph.definition.CopyFrom(definition)
        return await self.engine.start_run(NAMESPACE, request, Caller())

    async def settle(self, run_id: str = "r1") -> str:
        """Let everything happen that needs no time; return the status of a run."""
        await turns(50)
        return self.status(run_id)

    def status(self, run_id: str = "r1") -> str:
        """Return the durable status of a run; "" if there is none."""
        run = self.store.runs.by_key.get(RunKey(NAMESPACE, run_id))
        if run is None:
            return ""
        return run_pb2.RunStatus.Name(run.record.to_run().status).removeprefix("RUN_STATUS_")

    def check_quiescent(self) -> None:
        """Check that no slot, attempt or entry is left when nothing is under way."""
        assert len(self.dispatcher.holdings) == 0, self.dispatcher.holdings._slots
        assert not any(self.dispatcher.holdings._attempts.values())
        assert len(self.dispatcher.waiting) == 0
        assert self.runner.live_count == 0, list(self.runner._live)
        for seat in self.registry.seats():
            assert seat.in_flight == 0, seat.executor_id


@asynccontextmanager
async def rig(
    store: FaultyStore | None = None,
    *,
    limits: RunLimits | None = None,
    lost_grace: Span = LOST_GRACE,
) -> AsyncIterator[Rig]:
    """Run an engine."""
    made = Rig(store or FaultyStore(), limits or RunLimits(), lost_grace)
    async with made.running():
        yield made


async def together(*calls: Coroutine[None, None, object]) -> list[object]:
    """Make calls at once; return what each returned or raised."""
    return await asyncio.gather(*calls, return_exceptions=True)


def reason(result: object) -> str:
    """Return why a call was refused; "" if it was not."""
    return result.reason if isinstance(result, Refused) else ""


def work(**node: object) -> graph_pb2.StateGraph:
    """Build a graph of one task for an agent, with more fields of its node."""
    fields = {"action": {"delegate": {"agent_kind": "worker", "task_template": "go"}}, **node}
    return graph({"a": fields, "end": {}}, ["a > end"], terminal_nodes=["end"])


def steps(count: int, kind: str = "worker", **fields: object) -> graph_pb2.StateGraph:
    """Build a graph of tasks for agents, one after the other."""
    names = [f"n{number}" for number in range(count)]
    nodes: dict[str, dict[str, object]] = {
        name: {"action": {"delegate": {"agent_kind": kind, "task_template": "go"}}}
        for name in names
    }
    edges = [f"{one} > {two}" for one, two in zip(names, [*names[1:], "end"], strict=True)]
    return graph({**nodes, "end": {}}, edges, terminal_nodes=["end"], **fields)


def wide(width: int, kind: str = "worker", **node: object) -> graph_pb2.StateGraph:
    """Build a graph with many tasks for agents in one superstep."""
    names = [f"w{number}" for number in range(width)]
    nodes: dict[str, dict[str, object]] = {
        name: {"action": {"delegate": {"agent_kind": kind, "task_template": "go"}}, **node}
        for name in names
    }
    edges = [f"start > {name}" for name in names]
    return graph({"start": {}, **nodes}, edges)


def question(**fields: object) -> graph_pb2.StateGraph:
    """Build a graph that asks a person, then hands a task to an agent."""
    nodes: dict[str, dict[str, object]] = {
        "ask": {"action": {"human_approval": {"description": "go on?"}}},
        "a": {"action": {"delegate": {"agent_kind": "worker", "task_template": "go"}}},
    }
    return graph(nodes, ["ask > a"], **fields)
