"""How runs come to be: started, or continued from the end of another.

Rules: a run is created by its first append, so a crash leaves either all of it or nothing. An id that is in use is refused, and a
request that is repeated gets the run that it made.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import event_pb2, graph_pb2, run_pb2, run_service_pb2, state_pb2
from stepgraph_server.core import canonical, names
from stepgraph_server.core.children import resolved_graphs
from stepgraph_server.core.errors import Refused, StepgraphError
from stepgraph_server.core.inputs import Fork, Start
from stepgraph_server.core.instants import SECOND, after, from_duration, to_timestamp
from stepgraph_server.core.run import new_state
from stepgraph_server.core.state import RULES_VERSION
from stepgraph_server.core.status import status_name
from stepgraph_server.engine.callers import RequestKey
from stepgraph_server.engine.encoding import progress_of
from stepgraph_server.engine.live import Delivery, FutureReply, LiveRun
from stepgraph_server.engine.references import resolve
from stepgraph_server.engine.repeats import first_response
from stepgraph_server.storage.errors import RunExists, StorageError
from stepgraph_server.storage.records import RunCreation, RunEnding, RunKey, RunRecord

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from stepgraph_server.core.graph import CompiledGraph
    from stepgraph_server.core.instants import Instant
    from stepgraph_server.core.state import RunState
    from stepgraph_server.engine.callers import Caller
    from stepgraph_server.engine.clock import Clock
    from stepgraph_server.engine.graph_cache import GraphCache
    from stepgraph_server.engine.repeats import Repeats
    from stepgraph_server.engine.runner import Runner
    from stepgraph_server.storage.records import Prefix
    from stepgraph_server.storage.store import Store

#: How often a run is tried to be created when its id is in use by what turns out not to exist.
MAX_CREATION_TRIES: Final = 3


class Creator:
    """Creates runs."""

    def __init__(  # noqa: PLR0913  # the engine passes each dependency by name
        self,
        *,
        store: Store,
        graphs: GraphCache,
        runner: Runner,
        repeats: Repeats,
        clock: Clock,
        make_run_id: Callable[[], str],
        max_start_bytes: int,
    ) -> None:
        """`max_start_bytes` is how large the state that a run begins with may be: it stands in one event."""
        self._store = store
        self._graphs = graphs
        self._runner = runner
        self._repeats = repeats
        self._clock = clock
        self._make_run_id = make_run_id
        self._max_start_bytes = max_start_bytes

    async def start(
        self, namespace: str, request: run_service_pb2.StartRunRequest, caller: Caller
    ) -> run_pb2.Run:
        """Create a run, and return it once it is durable. A repeated request_id gives the first run."""
        key = _start_key(request)
        before = await self._repeats.earlier(namespace, key, run_pb2.Run)
        if before is not None:
            return before
        self.refuse_if_overloaded()
        version, graph = await self._graph(namespace, request.graph)
        resolved = await self.resolve(namespace, request.graph, graph)
        run_id = request.run_id or self._make_run_id()
        now = self._clock.now()
        started = run_started(request, run_id, version, graph, caller, now)
        started.resolved_graphs.extend(resolved_graphs(resolved))
        if request.HasField("continue_from"):
            started.initial_state.CopyFrom(
                await self._end_of(RunKey(namespace, request.continue_from))
            )
        creation = RunCreation(
            graph_digest=version.digest,
            graph_name=version.name,
            graph_version=version.version,
            labels=dict(request.labels),
            create_time=now,
            root_run_id=run_id,
        )

        async def begin() -> RunState:
            return new_state(run_id, graph, now)

        return await self.create(
            RunKey(namespace, run_id), creation, begin, Start(started=started), key
        )

    def new_run_id(self, wanted: str) -> str:
        """Return the id that a caller wants for a run, or one that nobody has."""
        return wanted or self._make_run_id()

    async def create(
        self,
        key: RunKey,
        creation: RunCreation,
        begin: Callable[[], Awaitable[RunState]],
        happened: Start | Fork,
        request: RequestKey | None,
        *,
        prefix: Prefix | None = None,
    ) -> run_pb2.Run:
        """Create a run by what happens to it first, and return it once it is durable.

        `begin` gives the state before that, a new one each time: one that was decided on is of no use for a second try.

        Raises:
            Refused: RUN_EXISTS, or the rules refuse what happens.
        """
        for _ in range(MAX_CREATION_TRIES):
            try:
                return await self._try(key, creation, begin, happened, request, prefix)
            except RunExists:
                exists = await self._exists(key)
                # The same request may have been on its way twice; then both get the run that it made.
                again = await self._repeats.earlier(key.namespace, request, run_pb2.Run)
                if again is not None:
                    return again
                if exists:
                    break
        message = f"there is a run {key.run_id!r} in namespace {key.namespace!r}; choose another id, or none"
        raise Refused("RUN_EXISTS", message, metadata={"run_id": key.run_id})

    async def _try(
        self,
        key: RunKey,
        creation: RunCreation,
        begin: Callable[[], Awaitable[RunState]],
        happened: Start | Fork,
        request: RequestKey | None,
        prefix: Prefix | None,
    ) -> run_pb2.Run:
        waiter: asyncio.Future[run_pb2.Run] = asyncio.get_running_loop().create_future()
        reply = FutureReply(waiter, lambda run: run_message(run, creation))
        delivery = Delivery(
            happened=happened,
            reply=reply,
            creation=creation,
            prefix=prefix,
            record=self._repeats.recorder(request, reply),
        )
        self._runner.create(key, await begin(), delivery)
        try:
            return await waiter
        except RunExists:
            raise
        except StorageError as error:
            return first_response(error, request, run_pb2.Run)

    async def _exists(self, key: RunKey) -> bool:
        """Whether there is a run, once whatever is under way with that id has been reported."""
        try:
            await self._runner.settled(key)
        except Refused:
            return False
        except StepgraphError:
            return True
        return True

    async def _end_of(self, key: RunKey) -> state_pb2.GraphState:
        """Return what a run takes over from one that has ended."""
        folder = self._runner.folder
        record = await folder.record(key)
        if not record.is_final:
            status = status_name(record.progress.status)
            message = f"run {key.run_id!r} is {status}; only one that has ended can be continued"
            metadata = {"run_id": key.run_id, "status": status}
            raise Refused("RUN_NOT_ENDED", message, metadata=metadata)
        ended = await folder.fold_until(key, record, None)
        state = state_pb2.GraphState(
            conversation=ended.conversation.to_message(),
            # What the server writes is about nodes of that run.
            variables={
                name: value
                for name, value in ended.variables.items()
                if not names.is_reserved(name)
            },
            metadata=ended.metadata,
            active_paradigm=ended.carried.paradigm,
        )
        # Why a call of that run has no result is known to that run alone, so it is told as one.
        state.conversation.messages.extend(ended.conversation.noted_results())
        size = state.ByteSize()
        if size > self._max_start_bytes:
            message = (
                f"the conversation and the variables of run {key.run_id!r} have {size:,} bytes, of at most "
                f"{self._max_start_bytes:,} that a run can begin with; start one with an initial_state that has less, "
                "or store large values"
            )
            metadata = {
                "field": "continue_from",
                "limit_bytes": str(self._max_start_bytes),
                "size_bytes": str(size),
            }
            raise Refused("PAYLOAD_TOO_LARGE", message, metadata=metadata)
        return state

    def refuse_if_overloaded(self) -> None:
        """Raise Refused OVERLOADED if more waits to be written than may."""
        if self._store.journal.backlog().is_full:
            raise Refused(
                "OVERLOADED",
                "more waits to be written than the server may queue; try again later",
                metadata={"limit_name": "journal_backlog"},
                retry_after=SECOND,
            )

    async def resolve(
        self, namespace: str, ref: graph_pb2.GraphRef, graph: CompiledGraph
    ) -> dict[str, run_pb2.GraphVersion]:
        """Return what the references of a graph stand for, and of all that it leads to. Raises Refused GRAPH_NOT_FOUND."""
        if not graph.references:
            return {}
        base = f"{ref.reference}: " if ref.HasField("reference") else "graph.definition."
        named = [each._replace(path=f"{base}{each.path}") for each in graph.references]
        return await resolve(self._graphs, namespace, named, {})

    async def _graph(
        self, namespace: str, ref: graph_pb2.GraphRef
    ) -> tuple[run_pb2.GraphVersion, CompiledGraph]:
        if ref.WhichOneof("kind") == "reference":
            record, graph = await self._graphs.by_reference(namespace, ref.reference)
            return run_pb2.GraphVersion(
                name=record.name, version=record.version, digest=record.digest
            ), graph
        graph = self._graphs.compile(ref.definition)
        await self._graphs.keep(namespace, graph, self._clock.now())
        return run_pb2.GraphVersion(digest=graph.digest), graph


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
    if request.HasField("delay"):
        fact.delay_until_time.CopyFrom(to_timestamp(after(now, from_duration(request.delay))))
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
