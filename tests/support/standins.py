"""What stands in for the engine behind the API in tests: runs that do nothing by themselves.

A run consists of what a test appends to it. Watching reads the journal, as the real hub does when it has to.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepgraph.v1 import (
    event_pb2,
    executor_service_pb2,
    interrupt_pb2,
    run_pb2,
    run_service_pb2,
    state_pb2,
)
from stepgraph_server.api.server import ApiServer, Backends
from stepgraph_server.core.errors import Quarantined, Refused
from stepgraph_server.core.inputs import Cancel
from stepgraph_server.core.instants import to_timestamp
from stepgraph_server.core.policies import GraphDefaults
from stepgraph_server.engine.clock import SystemClock
from stepgraph_server.storage.memory import MemoryStore
from stepgraph_server.storage.records import (
    Append,
    QuestionRow,
    RunCreation,
    RunEnding,
    RunKey,
    RunProgress,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

    from stepgraph.v1 import conversation_pb2, value_pb2
    from stepgraph_server.config import Settings
    from stepgraph_server.core.inputs import Pause, Signal, Unpause
    from stepgraph_server.core.instants import Span
    from stepgraph_server.engine.callers import Caller, RequestKey
    from stepgraph_server.storage.records import Appended
    from stepgraph_server.storage.runs import RunQuery

FINAL = (run_pb2.RUN_STATUS_COMPLETED, run_pb2.RUN_STATUS_FAILED, run_pb2.RUN_STATUS_CANCELLED)


@dataclass(slots=True, kw_only=True)
class StateStandIn:
    """A state that a test makes up."""

    sequence: int = 1
    messages: Sequence[conversation_pb2.Message] = ()
    variables: Mapping[str, value_pb2.Value] = field(default_factory=dict)
    active_paradigm: str = ""
    live: Sequence[run_service_pb2.ActivationState] = ()
    ended: state_pb2.GraphExecutionResult | None = None

    def rest(self) -> state_pb2.GraphState:
        """Return all but messages and variables."""
        return state_pb2.GraphState(active_paradigm=self.active_paradigm)

    def activations(self) -> Sequence[run_service_pb2.ActivationState]:
        """Return the live activations."""
        return self.live

    def result(self) -> state_pb2.GraphExecutionResult | None:
        """Return how the run ended."""
        return self.ended


class EngineStandIn:
    """An engine whose runs do what a test says. `gate` holds back what changes something while it is clear."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.clock = SystemClock()
        self.gate = asyncio.Event()
        self.gate.set()
        self.callers: list[Caller] = []
        self.forks: list[run_service_pb2.ForkRunRequest | run_service_pb2.RetryRunRequest] = []
        self.waits: list[run_service_pb2.Wait] = []
        self.changes: list[Cancel | Signal | Pause | Unpause] = []
        self.answers: list[tuple[str, interrupt_pb2.InterruptAnswer, str]] = []
        self.inputs: dict[tuple[str, str, int], bytes] = {}
        self.states: dict[RunKey, StateStandIn] = {}
        self.quarantined: set[RunKey] = set()
        self.changed = asyncio.Condition()
        self._waiting: dict[int, asyncio.Future[Appended]] = {}

    def on_appended(self, appended: list[Appended]) -> None:
        """Take what became durable."""
        for one in appended:
            self._waiting.pop(id(one.append)).set_result(one)

    async def append(self, append: Append) -> None:
        """Append, wait until it is durable, and let watchers know."""
        done: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._waiting[id(append)] = done
        self.store.journal.submit(append)
        error = (await done).error
        if error is not None:
            raise error
        async with self.changed:
            self.changed.notify_all()

    async def create(self, key: RunKey, labels: Mapping[str, str] | None = None) -> None:
        """Create a run."""
        event = event_pb2.RunEvent(sequence=1)
        event.run_started.run_id = key.run_id
        creation = RunCreation(
            graph_digest="sha256:0",
            labels=dict(labels or {}),
            create_time=self.clock.now(),
            root_run_id=key.run_id,
        )
        await self._events(key, [event], run_pb2.RUN_STATUS_RUNNING, creation=creation)

    async def go_on(self, key: RunKey, count: int = 1, *, payload: str = "") -> None:
        """Let so many supersteps happen in a run."""
        last = await self._last_sequence(key)
        events = []
        for sequence in range(last + 1, last + count + 1):
            event = event_pb2.RunEvent(sequence=sequence, time=to_timestamp(self.clock.now()))
            event.superstep_started.nodes.append(payload or "node")
            events.append(event)
        await self._events(key, events, run_pb2.RUN_STATUS_RUNNING)

    async def end(
        self, key: RunKey, status: run_pb2.RunStatus.ValueType = run_pb2.RUN_STATUS_COMPLETED
    ) -> None:
        """End a run."""
        event = event_pb2.RunEvent(sequence=await self._last_sequence(key) + 1)
        event.run_completed.result.SetInParent()
        ending = RunEnding(end_time=self.clock.now(), result=b"")
        await self._events(key, [event], status, ending=ending)

    async def ask(self, key: RunKey, interrupt_id: str, token: str = "") -> None:
        """Let a run ask a question."""
        now = self.clock.now()
        question = interrupt_pb2.Interrupt(
            interrupt_id=interrupt_id,
            run_id=key.run_id,
            status=interrupt_pb2.INTERRUPT_STATUS_OPEN,
            open_time=to_timestamp(now),
        )
        event = event_pb2.RunEvent(sequence=await self._last_sequence(key) + 1)
        event.interrupt_opened.question.CopyFrom(question)
        row = QuestionRow(
            interrupt_id=interrupt_id,
            status=question.status,
            open_time=now,
            external_token=token,
            question=question.SerializeToString(),
        )
        await self._events(key, [event], run_pb2.RUN_STATUS_SUSPENDED, questions=(row,))

    async def _events(
        self,
        key: RunKey,
        events: list[event_pb2.RunEvent],
        status: run_pb2.RunStatus.ValueType,
        *,
        creation: RunCreation | None = None,
        ending: RunEnding | None = None,
        questions: tuple[QuestionRow, ...] = (),
    ) -> None:
        last = events[-1].sequence
        await self.append(
            Append(
                key=key,
                first_sequence=events[0].sequence,
                last_sequence=last,
                batch=event_pb2.EventBatch(events=events).SerializeToString(),
                progress=RunProgress(status=status, last_sequence=last),
                creation=creation,
                ending=ending,
                questions=questions,
            )
        )

    async def _last_sequence(self, key: RunKey) -> int:
        record = await self.store.runs.get(key)
        assert record is not None
        return record.progress.last_sequence

    # ---- what the API calls

    async def start_run(
        self,
        namespace: str,
        request: run_service_pb2.StartRunRequest,
        caller: Caller,
    ) -> run_pb2.Run:
        """Create a run, by the name that the request gives it."""
        await self.gate.wait()
        if request.run_id == "explode":
            message = "a secret payload"
            raise RuntimeError(message)
        self.callers.append(caller)
        run = RunKey(namespace, request.run_id or request.request_id or "run")
        if await self.store.runs.get(run) is None:
            await self.create(run, request.labels)
        record = await self.store.runs.get(run)
        assert record is not None
        return record.to_run()

    async def fork_run(
        self,
        namespace: str,
        request: run_service_pb2.ForkRunRequest,
        caller: Caller,
        key: RequestKey | None,
    ) -> run_pb2.Run:
        """Create a run that has an origin."""
        return await self._fork(namespace, request)

    async def retry_run(
        self,
        namespace: str,
        request: run_service_pb2.RetryRunRequest,
        caller: Caller,
        key: RequestKey | None,
    ) -> run_pb2.Run:
        """Create a run that has an origin."""
        return await self._fork(namespace, request)

    async def _fork(
        self,
        namespace: str,
        request: run_service_pb2.ForkRunRequest | run_service_pb2.RetryRunRequest,
    ) -> run_pb2.Run:
        self.forks.append(request)
        await self.create(RunKey(namespace, request.new_run_id))
        return run_pb2.Run(run_id=request.new_run_id)

    async def explain_run(
        self, namespace: str, run_id: str
    ) -> tuple[run_pb2.Run, list[run_service_pb2.Wait]]:
        """Say what a test has written down."""
        record = await self.store.runs.get(RunKey(namespace, run_id))
        assert record is not None
        return record.to_run(), self.waits

    async def change_run(
        self,
        namespace: str,
        run_id: str,
        change: Cancel | Signal | Pause | Unpause,
        request: RequestKey | None,
    ) -> run_pb2.Run:
        """End a run if that is the change, and note every one."""
        await self.gate.wait()
        self.changes.append(change)
        key = RunKey(namespace, run_id)
        if await self.store.runs.get(key) is None:
            raise Refused("RUN_NOT_FOUND", f"no {run_id}", metadata={"run_id": run_id})
        if isinstance(change, Cancel):
            await self.end(key, run_pb2.RUN_STATUS_CANCELLED)
        record = await self.store.runs.get(key)
        assert record is not None
        return record.to_run()

    async def answer(
        self,
        namespace: str,
        interrupt_id: str,
        answer: interrupt_pb2.InterruptAnswer,
        answered_by: str,
        request: RequestKey | None,
        *,
        traceparent: str = "",
    ) -> interrupt_pb2.Interrupt:
        """Remember an answer."""
        self.answers.append((interrupt_id, answer, answered_by))
        return interrupt_pb2.Interrupt(interrupt_id=interrupt_id, answer=answer)

    async def task_input(
        self, namespace: str, task_id: str, attempt: int, instance_token: bytes
    ) -> bytes:
        """Return an input that a test put there."""
        found = self.inputs.get((namespace, task_id, attempt))
        if found is None:
            raise Refused("TASK_NOT_FOUND", f"no {task_id}", metadata={"task_id": task_id})
        return found

    async def run_state(self, namespace: str, run_id: str, sequence: int) -> StateStandIn:
        """Return a state that a test put there."""
        found = self.states.get(RunKey(namespace, run_id))
        if found is None:
            raise Refused("RUN_NOT_FOUND", f"no {run_id}", metadata={"run_id": run_id})
        return found

    # ---- watching

    async def watch_run(
        self,
        namespace: str,
        run_id: str,
        after_sequence: int,
        *,
        summary: bool,
        history_only: bool,
    ) -> AsyncGenerator[Sequence[bytes], None]:
        """Yield what the journal has, and what is appended to it."""
        key = RunKey(namespace, run_id)
        after = after_sequence
        while True:
            record = await self.store.runs.get(key)
            if record is None:
                raise Refused("RUN_NOT_FOUND", f"no {run_id}", metadata={"run_id": run_id})
            events = await self._read(key, after)
            if events:
                after = events[-1].sequence
                batch = run_service_pb2.WatchBatch(run_id=run_id, events=events)
                yield [batch.SerializeToString()]
            elif key in self.quarantined:
                raise Quarantined(run_id, after, "unreadable")
            elif history_only or record.progress.status in FINAL:
                return
            else:
                async with self.changed:
                    await self.changed.wait()

    async def watch_tree(
        self,
        namespace: str,
        run_id: str,
        after_position: int | None,
        *,
        summary: bool,
        history_only: bool,
    ) -> AsyncGenerator[tuple[Sequence[bytes], int], None]:
        """Yield what was appended to a run that is alone."""
        position = after_position or 0
        yield [], position
        found = await self.store.journal.read_positions(namespace, position, 1_000_000)
        for key, stored in found:
            if key.run_id == run_id:
                events = event_pb2.EventBatch.FromString(stored.batch).events
                batch = run_service_pb2.WatchBatch(run_id=key.run_id, events=events)
                yield [batch.SerializeToString()], stored.position

    async def watch_runs(
        self, namespace: str, query: RunQuery, after_position: int | None, *, summary: bool
    ) -> AsyncGenerator[tuple[Sequence[bytes], int], None]:
        """Yield what is appended to the runs of a namespace."""
        head = self.store.journal.head_position()
        position = head if after_position is None else after_position
        yield [], position
        while True:
            found = await self.store.journal.read_positions(namespace, position, 1_000_000)
            for key, stored in found:
                position = stored.position
                events = event_pb2.EventBatch.FromString(stored.batch).events
                batch = run_service_pb2.WatchBatch(run_id=key.run_id, events=events)
                yield [batch.SerializeToString()], position
            if not found:
                async with self.changed:
                    await self.changed.wait()

    async def _read(self, key: RunKey, after: int) -> list[event_pb2.RunEvent]:
        return [
            event
            for stored in await self.store.journal.read(key, after, 100_000)
            for event in event_pb2.EventBatch.FromString(stored.batch).events
            if event.sequence > after
        ]


class OutletStandIn:
    """The way to an executor that a test made up."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.closed = asyncio.Event()

    def drain(self, reason: str, grace: Span) -> None:
        """Note it."""
        self.said.append("drain")

    def close(self, reason: str, message: str, metadata: Mapping[str, str]) -> None:
        """Note it, and let the session end."""
        self.said.append(f"close {reason}")
        self.closed.set()


@dataclass(slots=True, kw_only=True)
class SeatStandIn:
    """An executor that is connected."""

    outlet: OutletStandIn


class SessionsStandIn:
    """Sessions that echo the frames of executors, and a list of executors that a test makes up."""

    def __init__(self) -> None:
        self.listed: dict[str, list[executor_service_pb2.Executor]] = {}
        self.connected: list[SeatStandIn] = []

    def executors(self, namespace: str) -> Sequence[executor_service_pb2.Executor]:
        """Return what a test put there."""
        return self.listed.get(namespace, [])

    def seats(self) -> Sequence[SeatStandIn]:
        """Return who is connected."""
        return list(self.connected)

    async def connect(
        self, requests: AsyncIterator[bytes], context: object
    ) -> AsyncGenerator[bytes, None]:
        """Welcome an executor, send every frame back, and stay until it is closed."""
        seat = SeatStandIn(outlet=OutletStandIn())
        self.connected.append(seat)
        yield executor_service_pb2.ConnectResponse(
            welcome=executor_service_pb2.Welcome()
        ).SerializeToString()
        try:
            async for frame in requests:
                yield executor_service_pb2.ConnectResponse(
                    ping=executor_service_pb2.Ping(nonce=len(frame))
                ).SerializeToString()
            await seat.outlet.closed.wait()
            raise Refused("SHUTTING_DOWN", "drained")
        finally:
            self.connected.remove(seat)


@dataclass(slots=True, kw_only=True)
class StandIns:
    """A server of the real API, with everything behind it that stands in."""

    server: ApiServer
    engine: EngineStandIn
    sessions: SessionsStandIn
    store: MemoryStore


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[StandIns]:
    """Serve the real API on loopback, with stand-ins behind it."""
    store = MemoryStore()
    engine, sessions = EngineStandIn(store), SessionsStandIn()
    await store.start(engine.on_appended)
    try:
        backends = Backends(
            store=store,
            engine=engine,
            watcher=engine,
            sessions=sessions,
            executors=sessions,
            clock=engine.clock,
            graph_defaults=GraphDefaults(),
        )
        async with ApiServer(settings, backends) as server:
            yield StandIns(server=server, engine=engine, sessions=sessions, store=store)
    finally:
        await store.close()
