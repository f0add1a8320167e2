"""Runs that begin with the prefix of another: forks, and retries of what failed.

Rules: the other run is read and never changed, and may be deleted afterwards. Its appends are copied by the store, in the transaction
that creates the new run; what is decided on top of them is the new run's first append.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from stepgraph.v1 import event_pb2, graph_pb2, interrupt_pb2, run_pb2, state_pb2, task_pb2
from stepgraph_server.core.children import resolved_graphs
from stepgraph_server.core.errors import Quarantined, Refused, Violation
from stepgraph_server.core.inputs import Fork, Start
from stepgraph_server.core.instants import Span, after, from_duration, to_timestamp
from stepgraph_server.core.run import new_state
from stepgraph_server.core.status import status_name
from stepgraph_server.engine.folding import QUARANTINED_BEFORE, READ_BYTES
from stepgraph_server.engine.retry_point import find_retry_point
from stepgraph_server.storage.records import Prefix, RunCreation, RunKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stepgraph.v1 import run_service_pb2
    from stepgraph_server.core.graph import CompiledGraph
    from stepgraph_server.core.state import RunState
    from stepgraph_server.engine.callers import Caller, RequestKey
    from stepgraph_server.engine.clock import Clock
    from stepgraph_server.engine.creating import Creator
    from stepgraph_server.engine.folding import Folder
    from stepgraph_server.engine.graph_cache import GraphCache
    from stepgraph_server.engine.repeats import Repeats
    from stepgraph_server.storage.journal import Journal
    from stepgraph_server.storage.records import RunRecord, StoredBatch


#: What the field can say. A limit that is as high as this is counted on from there no further.
_MOST_ITERATIONS = 2**32 - 1


class _Source(NamedTuple):
    """The run that is forked, and the state at the event where it is."""

    key: RunKey
    record: RunRecord
    state: RunState


class _Changes(NamedTuple):
    answers: tuple[tuple[str, interrupt_pb2.InterruptAnswer], ...] = ()
    results: tuple[tuple[str, task_pb2.TaskResult], ...] = ()
    patch: state_pb2.StateUpdate | None = None


class Forker:
    """Makes runs of runs."""

    def __init__(
        self,
        *,
        folder: Folder,
        journal: Journal,
        graphs: GraphCache,
        creator: Creator,
        repeats: Repeats,
        clock: Clock,
    ) -> None:
        self._folder = folder
        self._journal = journal
        self._graphs = graphs
        self._creator = creator
        self._repeats = repeats
        self._clock = clock

    async def fork(
        self,
        namespace: str,
        request: run_service_pb2.ForkRunRequest,
        caller: Caller,
        key: RequestKey | None,
    ) -> run_pb2.Run:
        """Create a run from a prefix of another, and return it once it is durable.

        Raises:
            Refused: See ForkRun; and RUN_NOT_FOUND, GRAPH_NOT_FOUND, RUN_EXISTS.
        """
        before = await self._repeats.earlier(namespace, key, run_pb2.Run)
        if before is not None:
            return before
        source_key = RunKey(namespace, request.run_id)
        record = await self._record(source_key)
        sequence = await self._end_of_append(source_key, record, request.sequence)
        state = await self._folder.fold_until(source_key, record, sequence)
        source = _Source(source_key, record, state)
        version, graph = None, None
        if request.graph:
            found, graph = await self._graphs.by_reference(namespace, request.graph)
            version = run_pb2.GraphVersion(
                name=found.name, version=found.version, digest=found.digest
            )
        forked = self._forked(source, caller, self._creator.new_run_id(request.new_run_id))
        if version is not None and graph is not None:
            forked.graph.CopyFrom(version)
            ref = graph_pb2.GraphRef(reference=request.graph)
            resolved = await self._creator.resolve(namespace, ref, graph)
            forked.resolved_graphs.extend(resolved_graphs(resolved))
        self._limit(forked, source, request)
        return await self._create(source, forked, graph, _changes(request), key, caller)

    async def retry(
        self,
        namespace: str,
        request: run_service_pb2.RetryRunRequest,
        caller: Caller,
        key: RequestKey | None,
    ) -> run_pb2.Run:
        """Create a run that begins just before the failure of another, with every result that came since.

        Raises:
            Refused: RUN_NOT_ENDED: it is not FAILED. RUN_NOT_FOUND, RUN_EXISTS.
        """
        before = await self._repeats.earlier(namespace, key, run_pb2.Run)
        if before is not None:
            return before
        source_key = RunKey(namespace, request.run_id)
        record = await self._record(source_key)
        if record.progress.status != run_pb2.RUN_STATUS_FAILED:
            raise _not_failed(record)
        sequence, results = await find_retry_point(partial(self._batches, source_key))
        new_run_id = self._creator.new_run_id(request.new_run_id)
        if not sequence:
            return await self._begin_anew(source_key, record, new_run_id, caller, key)
        state = await self._folder.fold_until(source_key, record, sequence)
        source = _Source(source_key, record, state)
        forked = self._forked(source, caller, new_run_id)
        self._limit(forked, source, None)
        came = tuple((task_id, result) for task_id, result in results if task_id in state.tasks)
        return await self._create(source, forked, None, _Changes(results=came), key, caller)

    # What is read of the other run

    async def _record(self, key: RunKey) -> RunRecord:
        record = await self._folder.record(key)
        if record.quarantined:
            raise Quarantined(key.run_id, record.progress.last_sequence, QUARANTINED_BEFORE)
        return record

    async def _end_of_append(self, key: RunKey, record: RunRecord, wanted: int) -> int:
        """Return the event to fork at. Raises Refused SEQUENCE_OUT_OF_RANGE, naming the nearest that would do."""
        head = record.progress.last_sequence
        if not wanted or wanted == head:
            return head
        metadata = {
            "run_id": key.run_id,
            "after_sequence": str(wanted),
            "last_sequence": str(head),
        }
        if wanted > head:
            message = (
                f"run {key.run_id!r} has {head} events, so it can't be forked at event {wanted}"
            )
            raise Refused("SEQUENCE_OUT_OF_RANGE", message, metadata=metadata)
        [batch, *_] = await self._journal.read(key, wanted - 1, 1)
        if batch.last_sequence != wanted:
            earlier = batch.first_sequence - 1
            near = f"{earlier} or {batch.last_sequence}" if earlier else str(batch.last_sequence)
            message = f"event {wanted} of run {key.run_id!r} was recorded together with others; fork at {near}"
            raise Refused("SEQUENCE_OUT_OF_RANGE", message, metadata=metadata)
        return wanted

    async def _batches(self, key: RunKey, after_sequence: int) -> AsyncIterator[StoredBatch]:
        while batches := await self._journal.read(key, after_sequence, READ_BYTES):
            for batch in batches:
                yield batch
            after_sequence = batches[-1].last_sequence

    # What the new run begins with

    def _forked(self, source: _Source, caller: Caller, new_run_id: str) -> event_pb2.RunForked:
        return event_pb2.RunForked(
            run_id=new_run_id,
            origin=run_pb2.RunOrigin(run_id=source.key.run_id, sequence=source.state.sequence),
            traceparent=caller.traceparent,
            tracestate=caller.tracestate,
        )

    def _limit(
        self,
        forked: event_pb2.RunForked,
        source: _Source,
        request: run_service_pb2.ForkRunRequest | None,
    ) -> None:
        """Set labels and limits: those of the request, else as they were, counted anew."""
        state, creation = source.state, source.record.creation
        cap, tokens, limit, labels = 0, state.token_limit, None, None
        if request is not None:
            cap, labels = request.max_iterations, request.labels
            tokens = request.token_limit if request.HasField("token_limit") else tokens
            if request.HasField("time_limit"):
                limit = from_duration(request.time_limit)
        if limit is None and state.time_limit_at is not None:
            limit = Span(state.time_limit_at - state.started_at)
        before = state.max_iterations - state.forked_at_iteration
        forked.max_iterations = min(state.iterations + (cap or before), _MOST_ITERATIONS)
        forked.token_limit = tokens
        if limit:
            forked.time_limit_time.CopyFrom(to_timestamp(after(self._clock.now(), limit)))
        forked.labels.update(labels or creation.labels)

    async def _create(
        self,
        source: _Source,
        forked: event_pb2.RunForked,
        graph: CompiledGraph | None,
        changes: _Changes,
        key: RequestKey | None,
        caller: Caller,
    ) -> run_pb2.Run:
        self._creator.refuse_if_overloaded()
        if changes.patch is not None:
            forked.patch.CopyFrom(changes.patch)
        creation = source.record.creation
        created = RunCreation(
            graph_digest=forked.graph.digest or creation.graph_digest,
            graph_name=forked.graph.name if forked.HasField("graph") else creation.graph_name,
            graph_version=(
                forked.graph.version if forked.HasField("graph") else creation.graph_version
            ),
            labels=dict(forked.labels),
            create_time=self._clock.now(),
            root_run_id=forked.run_id,
            origin=forked.origin.SerializeToString(),
        )
        happened = Fork(
            forked=forked,
            graph=graph,
            answers=changes.answers,
            results=changes.results,
            answered_by=caller.identity,
            keep_tokens=source.record.is_final,
        )
        sequence = source.state.sequence

        async def begin() -> RunState:
            return await self._folder.fold_until(source.key, source.record, sequence)

        return await self._creator.create(
            RunKey(source.key.namespace, forked.run_id),
            created,
            begin,
            happened,
            key,
            prefix=Prefix(source=source.key, last_sequence=sequence),
        )

    async def _begin_anew(
        self,
        source_key: RunKey,
        record: RunRecord,
        new_run_id: str,
        caller: Caller,
        key: RequestKey | None,
    ) -> run_pb2.Run:
        """Start a run as the other was started: it failed in its first append, so there is nothing to keep."""
        [batch, *_] = await self._journal.read(source_key, 0, 1)
        first = event_pb2.EventBatch.FromString(batch.batch).events[0]
        started, now = first.run_started, self._clock.now()
        old = await self._folder.fold_until(source_key, record, 1)
        started.run_id = started.root_run_id = new_run_id
        started.ClearField("delay_until_time")
        started.ClearField("parent")
        started.depth = 0
        started.traceparent, started.tracestate = caller.traceparent, caller.tracestate
        if old.time_limit_at is not None:
            limit = Span(old.time_limit_at - old.started_at)
            started.time_limit_time.CopyFrom(to_timestamp(after(now, limit)))
        created = RunCreation(
            graph_digest=record.creation.graph_digest,
            graph_name=record.creation.graph_name,
            graph_version=record.creation.graph_version,
            labels=dict(record.creation.labels),
            create_time=now,
            root_run_id=new_run_id,
            origin=run_pb2.RunOrigin(run_id=source_key.run_id).SerializeToString(),
        )

        async def begin() -> RunState:
            return new_state(new_run_id, old.graph, now)

        run_key = RunKey(source_key.namespace, new_run_id)
        return await self._creator.create(run_key, created, begin, Start(started=started), key)


def _changes(request: run_service_pb2.ForkRunRequest) -> _Changes:
    """Return the changes of a request. Raises Refused INVALID_REQUEST for two patches."""
    kinds = [change.WhichOneof("kind") for change in request.changes]
    if kinds.count("patch") > 1:
        path, message = "changes", "has more than one patch; write one with all that is to change"
        violation = Violation(path=path, message=message)
        raise Refused(
            "INVALID_REQUEST",
            f"{path}: {message}",
            metadata={"field": path},
            violations=[violation],
        )
    patch = next((each.patch.update for each in request.changes if each.HasField("patch")), None)
    return _Changes(
        answers=tuple(
            (each.answer.activation_id, each.answer.answer)
            for each in request.changes
            if each.HasField("answer")
        ),
        results=tuple(
            (each.result.task_id, each.result.result)
            for each in request.changes
            if each.HasField("result")
        ),
        patch=patch,
    )


def _not_failed(record: RunRecord) -> Refused:
    status = status_name(record.progress.status)
    message = f"run {record.key.run_id!r} is {status}; only one that is FAILED can be retried, others can be forked"
    metadata = {"run_id": record.key.run_id, "status": status}
    return Refused("RUN_NOT_ENDED", message, metadata=metadata)
