"""What can be done with runs: start, answer, cancel, read. The face of the engine.

Rules: whoever calls may go away at any time; what was handed over is carried out all the same, because the engine owns the
tasks that do it. A request id is looked up first and stored in the same append as what it did.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from typing import TYPE_CHECKING, Final, TypeVar

from stepgraph.v1 import event_pb2, graph_pb2, interrupt_pb2, run_pb2, run_service_pb2
from stepgraph_server.core import canonical
from stepgraph_server.core.errors import Refused, StepgraphError
from stepgraph_server.core.inputs import Answer, Cancel, Start
from stepgraph_server.core.instants import SECOND, after, from_duration, to_timestamp
from stepgraph_server.core.interrupts import current
from stepgraph_server.core.run import new_state
from stepgraph_server.core.state import RULES_VERSION, TaskStatus
from stepgraph_server.engine.callers import RequestKey
from stepgraph_server.engine.encoding import progress_of
from stepgraph_server.engine.live import Delivery, FutureReply, LiveRun
from stepgraph_server.engine.state_at import FoldedState
from stepgraph_server.engine.task_frames import task_input
from stepgraph_server.executors.port import split_task_id
from stepgraph_server.storage.errors import RequestIdReused, RunExists, StorageError
from stepgraph_server.storage.records import (
    RequestRecord,
    RunCreation,
    RunEnding,
    RunKey,
    RunRecord,
)
from stepgraph_server.telemetry import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

    from stepgraph_server.core.graph import CompiledGraph
    from stepgraph_server.core.instants import Instant
    from stepgraph_server.engine.callers import Caller
    from stepgraph_server.engine.clock import Clock
    from stepgraph_server.engine.dispatcher import Dispatcher
    from stepgraph_server.engine.graph_cache import GraphCache
    from stepgraph_server.engine.runner import Runner
    from stepgraph_server.executors.registry import Registry
    from stepgraph_server.storage.store import Store

_log = logging.getLogger(__name__)
_T = TypeVar("_T", bound="Message")

#: How often executors whose grace is over are looked for; it adds at most this to the grace.
EXPIRY_PERIOD_S: Final = 0.25
#: How often a run is tried to be created when its id is in use by what turns out not to exist.
MAX_CREATION_TRIES: Final = 3
#: Rows that recovery reads at once.
RECOVERY_PAGE: Final = 1_000
#: Runs that recovery takes up at a time. What is asked for meanwhile waits for no more than these.
RECOVERED_AT_ONCE: Final = 16
#: How often a recovery that takes long says how far it is.
RECOVERY_REPORT_S: Final = 2.0


class Engine:
    """All runs of a server."""

    def __init__(  # noqa: PLR0913  # the composition root passes each dependency by name
        self,
        *,
        store: Store,
        graphs: GraphCache,
        runner: Runner,
        dispatcher: Dispatcher,
        registry: Registry,
        clock: Clock,
        make_run_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._graphs = graphs
        self._runner = runner
        self._dispatcher = dispatcher
        self._registry = registry
        self._clock = clock
        self._make_run_id = make_run_id

    # Requests

    async def start_run(
        self, namespace: str, request: run_service_pb2.StartRunRequest, caller: Caller
    ) -> run_pb2.Run:
        """Create a run, and return it once it is durable. A repeated request_id gives the first run."""
        key = _start_key(request)
        before = await self._earlier(namespace, key, run_pb2.Run)
        if before is not None:
            return before
        self._refuse_if_overloaded()
        version, graph = await self._graph(namespace, request.graph)
        run_id = request.run_id or self._make_run_id()
        now = self._clock.now()
        started = run_started(request, run_id, version, graph, caller, now)
        for _ in range(MAX_CREATION_TRIES):
            try:
                return await self._create(RunKey(namespace, run_id), started, graph, key, now)
            except RunExists:
                exists = await self._exists(RunKey(namespace, run_id))
                # The same request may have been on its way twice; then both get the run that it made.
                again = await self._earlier(namespace, key, run_pb2.Run)
                if again is not None:
                    return again
                if exists:
                    break
        message = (
            f"there is a run {run_id!r} in namespace {namespace!r}; choose another id, or none"
        )
        raise Refused("RUN_EXISTS", message, metadata={"run_id": run_id})

    async def _create(  # all that a run begins with
        self,
        run_key: RunKey,
        started: event_pb2.RunStarted,
        graph: CompiledGraph,
        request: RequestKey | None,
        now: Instant,
    ) -> run_pb2.Run:
        creation = RunCreation(
            graph_digest=started.graph.digest,
            graph_name=started.graph.name,
            graph_version=started.graph.version,
            labels=dict(started.labels),
            create_time=now,
            root_run_id=started.root_run_id,
        )
        waiter: asyncio.Future[run_pb2.Run] = asyncio.get_running_loop().create_future()
        reply = FutureReply(waiter, lambda run: run_message(run, creation))
        delivery = Delivery(
            happened=Start(started=started),
            reply=reply,
            creation=creation,
            record=self._recorder(request, reply),
        )
        self._runner.create(run_key, new_state(run_key.run_id, graph, now), delivery)
        try:
            return await waiter
        except RunExists:
            raise
        except StorageError as error:
            return _translate(error, request, run_pb2.Run)

    async def _exists(self, key: RunKey) -> bool:
        """Whether there is a run, once whatever is under way with that id has been reported."""
        try:
            await self._runner.settled(key)
        except Refused:
            return False
        except StepgraphError:
            return True
        return True

    async def cancel_run(
        self, namespace: str, run_id: str, reason: str, request: RequestKey | None
    ) -> run_pb2.Run:
        """Stop a run, and return it once it is durable that it stops."""
        before = await self._earlier(namespace, request, run_pb2.Run)
        if before is not None:
            return before
        key = RunKey(namespace, run_id)
        creation = (await self._runner.folder.record(key)).creation
        happened = Cancel(reason=reason)
        return await self._ask(
            key, happened, request, lambda run: run_message(run, creation), run_pb2.Run
        )

    async def answer(
        self,
        namespace: str,
        interrupt_id: str,
        answer: interrupt_pb2.InterruptAnswer,
        answered_by: str,
        request: RequestKey | None,
    ) -> interrupt_pb2.Interrupt:
        """Answer a question, and return it once the answer is durable."""
        before = await self._earlier(namespace, request, interrupt_pb2.Interrupt)
        if before is not None:
            return before
        found = await self._store.interrupts.get(namespace, interrupt_id)
        if found is None:
            message = f"there is no interrupt {interrupt_id!r} in namespace {namespace!r}"
            raise Refused("INTERRUPT_NOT_FOUND", message, metadata={"interrupt_id": interrupt_id})
        happened = Answer(interrupt_id=interrupt_id, answer=answer, answered_by=answered_by)
        return await self._ask(
            found[1],
            happened,
            request,
            lambda run: _question(run, interrupt_id),
            interrupt_pb2.Interrupt,
        )

    async def task_input(
        self, namespace: str, task_id: str, attempt: int, instance_token: bytes
    ) -> bytes:
        """Return the serialized TaskInput of an attempt that this instance holds."""
        run_id, local_id = split_task_id(task_id)
        try:
            run = await self._runner.settled(RunKey(namespace, run_id))
        except Refused as error:
            raise _no_attempt(task_id, attempt) from error
        state = run.state
        task = state.tasks.get(local_id) if state is not None else None
        instance = hashlib.sha256(instance_token).hexdigest()
        if (
            state is None
            or task is None
            or (task.status, task.attempt, task.instance)
            != (TaskStatus.ASSIGNED, attempt, instance)
        ):
            raise _no_attempt(task_id, attempt)
        return task_input(state, task)

    async def run_state(self, namespace: str, run_id: str, sequence: int) -> FoldedState:
        """Return the state of a run after an event; 0 means its last one."""
        key = RunKey(namespace, run_id)
        record = await self._runner.folder.record(key)
        head = record.progress.last_sequence
        if sequence > head:
            message = (
                f"run {run_id!r} has {head} events, so there is no state after event {sequence}"
            )
            metadata = {
                "run_id": run_id,
                "after_sequence": str(sequence),
                "last_sequence": str(head),
            }
            raise Refused("SEQUENCE_OUT_OF_RANGE", message, metadata=metadata)
        return FoldedState(await self._runner.folder.fold_until(key, record, sequence or head))

    # Inside

    async def _ask(
        self,
        key: RunKey,
        happened: Answer | Cancel,
        request: RequestKey | None,
        respond: Callable[[LiveRun], _T],
        kind: type[_T],
    ) -> _T:
        waiter: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        reply = FutureReply(waiter, respond)
        delivery = Delivery(happened=happened, reply=reply, record=self._recorder(request, reply))
        self._runner.deliver(key, delivery)
        try:
            response = await waiter
        except StorageError as error:
            return _translate(error, request, kind)
        if request is not None and delivery.unrecorded:
            # It changed nothing, so there was no append to store the request with.
            record = _record(request, response, self._clock.now())
            try:
                first = await self._store.requests.put(key.namespace, record)
            except StorageError as error:
                return _translate(error, request, kind)
            return _first_response(first, request, kind)
        return response

    def _recorder(
        self, request: RequestKey | None, reply: FutureReply[_T]
    ) -> Callable[[], RequestRecord] | None:
        if request is None:
            return None
        return lambda: _record(request, reply.made, self._clock.now())

    async def _earlier(
        self, namespace: str, request: RequestKey | None, kind: type[_T]
    ) -> _T | None:
        """Return the first response to a request that is repeated."""
        if request is None:
            return None
        record = await self._store.requests.get(namespace, request.method, request.request_id)
        return None if record is None else _first_response(record, request, kind)

    def _refuse_if_overloaded(self) -> None:
        if self._store.journal.backlog().is_full:
            raise Refused(
                "OVERLOADED",
                "more waits to be written than the server may queue; try again later",
                metadata={"limit_name": "journal_backlog"},
                retry_after=SECOND,
            )

    async def _graph(
        self, namespace: str, ref: graph_pb2.GraphRef
    ) -> tuple[run_pb2.GraphVersion, CompiledGraph]:
        if ref.WhichOneof("kind") == "reference":
            record, graph = await self._graphs.by_reference(namespace, ref.reference)
            return run_pb2.GraphVersion(
                name=record.name, version=record.version, digest=record.digest
            ), graph
        graph = self._graphs.compile(ref.definition)
        await self._store.graphs.put(
            namespace,
            "",
            graph.digest,
            ref.definition.SerializeToString(deterministic=True),
            self._clock.now(),
        )
        return run_pb2.GraphVersion(digest=graph.digest), graph

    # Life of the server

    async def recover(self) -> list[RunKey]:
        """Arm the timers of all open runs, and return those that `take_up` is for.

        Runs that only wait for people or time cost a row and a timer.
        """
        cursor = 0
        found: list[RunKey] = []
        while True:
            page = await self._store.runs.open_runs(cursor, RECOVERY_PAGE)
            for row in page:
                cursor = row.rowid
                if row.next_due is not None:
                    self._runner.timers.arm(row.key, row.next_due)
                if row.status in (run_pb2.RUN_STATUS_RUNNING, run_pb2.RUN_STATUS_STOPPING):
                    found.append(row.key)
            if len(page) < RECOVERY_PAGE:
                return found

    async def take_up(self, keys: list[RunKey]) -> None:
        """Load all runs that were under way, a few at a time, and say in the log how far it is.

        Meanwhile calls are answered and executors connect: whoever asks for one of these runs has it loaded at once.
        """
        if not keys:
            return
        loop = asyncio.get_running_loop()
        started = reported = loop.time()
        for first in range(0, len(keys), RECOVERED_AT_ONCE):
            if loop.time() - reported >= RECOVERY_REPORT_S:
                reported = loop.time()
                _log.info(
                    "Runs that were under way are being taken up",
                    extra={"action": names.RUNS_RECOVERING, "done": first, "count": len(keys)},
                )
            await asyncio.gather(*map(self._take_up, keys[first : first + RECOVERED_AT_ONCE]))
        _log.info(
            "Runs that were under way were taken up",
            extra={
                "action": names.RUNS_RECOVERED,
                "count": len(keys),
                "seconds": round(loop.time() - started, 1),
            },
        )

    async def _take_up(self, key: RunKey) -> None:
        # What can't be read is quarantined, which the log says; it must not keep the others.
        with contextlib.suppress(StepgraphError):
            await self._runner.settled(key)

    async def watch_graces(self) -> None:
        """Tell runs of executors that did not come back. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(EXPIRY_PERIOD_S)
            for lost in self._registry.expire(self._clock.now()):
                self._dispatcher.lost(lost)


def _start_key(request: run_service_pb2.StartRunRequest) -> RequestKey | None:
    """Return what the start of a run is remembered by, whichever RPC it came with."""
    if not request.request_id:
        return None
    bare = run_service_pb2.StartRunRequest()
    bare.CopyFrom(request)
    bare.ClearField("request_id")
    bare.ClearField("namespace")
    return RequestKey(
        method="StartRun", request_id=request.request_id, fingerprint=canonical.digest(bare)
    )


def run_started(  # everything that a run starts with
    request: run_service_pb2.StartRunRequest,
    run_id: str,
    version: run_pb2.GraphVersion,
    graph: CompiledGraph,
    caller: Caller,
    now: Instant,
) -> event_pb2.RunStarted:
    """Return the first event of a run."""
    fact = event_pb2.RunStarted(
        run_id=run_id,
        graph=version,
        rules_version=RULES_VERSION,
        labels=request.labels,
        selector=request.selector,
        max_iterations=request.max_iterations or graph.max_iterations,
        token_limit=request.token_limit,
        root_run_id=run_id,
        traceparent=caller.traceparent,
        tracestate=caller.tracestate,
    )
    if request.HasField("initial_state"):
        fact.initial_state.CopyFrom(request.initial_state)
    if request.HasField("input"):
        fact.input.CopyFrom(request.input)
    limit = (
        from_duration(request.time_limit) if request.HasField("time_limit") else graph.time_limit
    )
    if limit:
        fact.time_limit_time.CopyFrom(to_timestamp(after(now, limit)))
    return fact


def run_message(run: LiveRun, creation: RunCreation) -> run_pb2.Run:
    """Return a run in memory as callers see it."""
    state = run.state
    assert state is not None
    ending = None
    if state.final:
        assert state.ended_at is not None
        assert state.result is not None
        failure = state.failure.SerializeToString() if state.failure is not None else b""
        ending = RunEnding(
            end_time=state.ended_at, result=state.result.SerializeToString(), failure=failure
        )
    return RunRecord(
        key=run.key, creation=creation, progress=progress_of(state), ending=ending
    ).to_run()


def _question(run: LiveRun, interrupt_id: str) -> interrupt_pb2.Interrupt:
    assert run.state is not None
    return current(run.state.questions[interrupt_id])


def _record(request: RequestKey, response: Message, now: Instant) -> RequestRecord:
    return RequestRecord(
        method=request.method,
        request_id=request.request_id,
        fingerprint=request.fingerprint,
        response=response.SerializeToString(),
        create_time=now,
    )


def _first_response(record: RequestRecord, request: RequestKey, kind: type[_T]) -> _T:
    if record.fingerprint != request.fingerprint:
        message = f"request_id {request.request_id!r} was used for another request; use a new one"
        raise Refused("REQUEST_ID_REUSED", message, metadata={"request_id": request.request_id})
    return kind.FromString(record.response)


def _translate(error: StorageError, request: RequestKey | None, kind: type[_T]) -> _T:
    """Return the first response if the error says that there is one; else raise what the caller is told."""
    if isinstance(error, RequestIdReused) and request is not None:
        return _first_response(error.record, request, kind)
    message = "it could not be written; nothing was recorded, or a retry with the same request_id finds what was"
    raise Refused("JOURNAL_UNAVAILABLE", message, retry_after=SECOND) from error


def _no_attempt(task_id: str, attempt: int) -> Refused:
    message = (
        f"attempt {attempt} of {task_id!r} is not current, or another executor has it; drop it"
    )
    return Refused(
        "TASK_NOT_FOUND", message, metadata={"task_id": task_id, "attempt": str(attempt)}
    )
