"""RunService: start, read, list, watch and cancel runs."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from stepgraph.v1 import run_service_pb2
from stepgraph_server.api import paging
from stepgraph_server.api.callers import caller_of, request_key
from stepgraph_server.api.references import refuse_missing_values
from stepgraph_server.api.requests import namespace_of
from stepgraph_server.api.splicing import spliced
from stepgraph_server.api.state_pages import state_page
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.inputs import Cancel, Pause, Signal, Unpause
from stepgraph_server.core.instants import Instant, from_timestamp
from stepgraph_server.storage.graphs import GraphReference
from stepgraph_server.storage.records import RunKey
from stepgraph_server.storage.runs import RunQuery

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from stepgraph.v1 import run_pb2
    from stepgraph_server.api.changes import Changes
    from stepgraph_server.api.ports import Context, Engine, Watcher
    from stepgraph_server.config import PageSettings
    from stepgraph_server.storage.runs import Runs
    from stepgraph_server.storage.values import Values


class RunService:
    """See run_service.proto."""

    def __init__(
        self,
        *,
        runs: Runs,
        values: Values,
        engine: Engine,
        watcher: Watcher,
        changes: Changes,
        pages: PageSettings,
    ) -> None:
        self._runs = runs
        self._values = values
        self._engine = engine
        self._watcher = watcher
        self._changes = changes
        self._pages = pages

    async def StartRun(
        self, request: run_service_pb2.StartRunRequest, context: Context
    ) -> run_service_pb2.StartRunResponse:
        """Create a run."""
        return run_service_pb2.StartRunResponse(run=await self._start(request, context))

    async def StartAndWatchRun(
        self, request: run_service_pb2.StartAndWatchRunRequest, context: Context
    ) -> AsyncGenerator[run_service_pb2.StartAndWatchRunResponse | bytes, None]:
        """Create a run and watch it from its first event."""
        # Only the start outlives the caller; the watch ends with it.
        run = await self._changes.carry_out(lambda: self._start(request.start, context))
        yield run_service_pb2.StartAndWatchRunResponse(run=run)
        watch = self._watcher.watch_run(
            run.namespace,
            run.run_id,
            0,
            summary=request.view == run_service_pb2.WATCH_VIEW_SUMMARY,
            history_only=False,
        )
        async with aclosing(watch) as items:
            async for batches in items:
                yield spliced("StartAndWatchRunResponse", batches)

    async def GetRun(
        self, request: run_service_pb2.GetRunRequest, context: Context
    ) -> run_service_pb2.GetRunResponse:
        """Read a run's row."""
        record = await self._runs.get(RunKey(namespace_of(request), request.run_id))
        if record is None:
            raise Refused(
                "RUN_NOT_FOUND",
                f"there is no run {request.run_id}",
                metadata={"run_id": request.run_id},
            )
        return run_service_pb2.GetRunResponse(run=record.to_run())

    async def ListRuns(
        self, request: run_service_pb2.ListRunsRequest, context: Context
    ) -> run_service_pb2.ListRunsResponse:
        """List runs, newest first."""
        position = paging.decode_page(request.page_token, request, (int, str))
        limit = paging.entries(request.page_size, self._pages)
        query = query_of(
            request.filter,
            after=(Instant(int(position[0])), str(position[1])) if position else None,
            limit=limit + 1,
        )
        found = await self._runs.list(namespace_of(request), query)
        # With their results, 500 rows may be far more than a response can hold.
        runs, is_more = paging.cut(
            [record.to_run() for record in found],
            limit,
            self._pages.max_response_bytes,
            lambda run: run.ByteSize(),
        )
        response = run_service_pb2.ListRunsResponse(runs=runs)
        if is_more:
            response.next_page_token = paging.encode(request, _position(runs))
        return response

    async def WatchRun(
        self, request: run_service_pb2.WatchRunRequest, context: Context
    ) -> AsyncGenerator[bytes, None]:
        """Send all events of a run after a sequence, then go live."""
        if request.include_descendants:
            async with aclosing(self._watch_tree(request)) as responses:
                async for response in responses:
                    yield response
            return
        watch = self._watcher.watch_run(
            namespace_of(request),
            request.run_id,
            request.after_sequence,
            summary=request.view == run_service_pb2.WATCH_VIEW_SUMMARY,
            history_only=request.history_only,
        )
        async with aclosing(watch) as items:
            async for batches in items:
                yield spliced("WatchRunResponse", batches)

    async def _watch_tree(
        self, request: run_service_pb2.WatchRunRequest
    ) -> AsyncGenerator[bytes, None]:
        position = paging.decode_resume(request.resume_token, request, (int,))
        watch = self._watcher.watch_tree(
            namespace_of(request),
            request.run_id,
            int(position[0]) if position else None,
            summary=request.view == run_service_pb2.WATCH_VIEW_SUMMARY,
            history_only=request.history_only,
        )
        tokens = paging.TokenMaker(request)
        async with aclosing(watch) as items:
            async for batches, at in items:
                yield spliced("WatchRunResponse", batches, resume_token=tokens.encode((at,)))

    async def WatchRuns(
        self, request: run_service_pb2.WatchRunsRequest, context: Context
    ) -> AsyncGenerator[bytes, None]:
        """Send what happens in all runs that match."""
        position = paging.decode_resume(request.resume_token, request, (int,))
        watch = self._watcher.watch_runs(
            namespace_of(request),
            query_of(request.filter),
            int(position[0]) if position else None,
            summary=request.view == run_service_pb2.WATCH_VIEW_SUMMARY,
        )
        tokens = paging.TokenMaker(request)
        async with aclosing(watch) as items:
            async for batches, at in items:
                yield spliced("WatchRunsResponse", batches, resume_token=tokens.encode((at,)))

    async def GetRunState(
        self, request: run_service_pb2.GetRunStateRequest, context: Context
    ) -> run_service_pb2.GetRunStateResponse:
        """Read the state of a run after an event, in pages."""
        position = paging.decode_page(request.page_token, request, (int, int))
        # Later pages are of the same state as the first, even if the run has gone on since.
        sequence = int(position[0]) if position else request.sequence
        state = await self._engine.run_state(namespace_of(request), request.run_id, sequence)
        response, rest = state_page(
            state,
            start=int(position[1]) if position else 0,
            limit=paging.state_entries(request.page_size, self._pages),
            max_bytes=self._pages.max_response_bytes,
        )
        if rest is not None:
            response.next_page_token = paging.encode(request, (state.sequence, rest))
        return response

    async def CancelRun(
        self, request: run_service_pb2.CancelRunRequest, context: Context
    ) -> run_service_pb2.CancelRunResponse:
        """Stop a run."""
        run = await self._engine.change_run(
            namespace_of(request),
            request.run_id,
            Cancel(reason=request.reason),
            request_key("CancelRun", request),
        )
        return run_service_pb2.CancelRunResponse(run=run)

    async def PauseRun(
        self, request: run_service_pb2.PauseRunRequest, context: Context
    ) -> run_service_pb2.PauseRunResponse:
        """Keep anything new of a run from starting."""
        run = await self._engine.change_run(
            namespace_of(request),
            request.run_id,
            Pause(reason=request.reason),
            request_key("PauseRun", request),
        )
        return run_service_pb2.PauseRunResponse(run=run)

    async def UnpauseRun(
        self, request: run_service_pb2.UnpauseRunRequest, context: Context
    ) -> run_service_pb2.UnpauseRunResponse:
        """Let a paused run go on."""
        run = await self._engine.change_run(
            namespace_of(request),
            request.run_id,
            Unpause(),
            request_key("UnpauseRun", request),
        )
        return run_service_pb2.UnpauseRunResponse(run=run)

    async def SignalRun(
        self, request: run_service_pb2.SignalRunRequest, context: Context
    ) -> run_service_pb2.SignalRunResponse:
        """Send a signal to a run."""
        namespace = namespace_of(request)
        await refuse_missing_values(request, namespace, self._values)
        has_payload = request.HasField("payload")
        signal = Signal(
            name=request.name,
            correlation=request.correlation,
            payload=request.payload if has_payload else None,
        )
        key = request_key("SignalRun", request)
        run = await self._engine.change_run(namespace, request.run_id, signal, key)
        return run_service_pb2.SignalRunResponse(run=run)

    async def ForkRun(
        self, request: run_service_pb2.ForkRunRequest, context: Context
    ) -> run_service_pb2.ForkRunResponse:
        """Make a new run from a run's prefix."""
        namespace = namespace_of(request)
        await refuse_missing_values(request, namespace, self._values)
        key = request_key("ForkRun", request)
        run = await self._engine.fork_run(namespace, request, caller_of(context), key)
        return run_service_pb2.ForkRunResponse(run=run)

    async def RetryRun(
        self, request: run_service_pb2.RetryRunRequest, context: Context
    ) -> run_service_pb2.RetryRunResponse:
        """Make a new run that starts just before a run's failure."""
        key = request_key("RetryRun", request)
        run = await self._engine.retry_run(namespace_of(request), request, caller_of(context), key)
        return run_service_pb2.RetryRunResponse(run=run)

    async def ExplainRun(
        self, request: run_service_pb2.ExplainRunRequest, context: Context
    ) -> run_service_pb2.ExplainRunResponse:
        """Say what a run waits for."""
        run, waits = await self._engine.explain_run(namespace_of(request), request.run_id)
        # Questions may be large; what is cut is told by ListInterrupts.
        limit = self._pages.max_response_bytes - run.ByteSize()
        shown, _ = paging.cut(waits, len(waits), limit, lambda wait: wait.ByteSize())
        return run_service_pb2.ExplainRunResponse(run=run, waits=shown)

    async def _start(
        self, request: run_service_pb2.StartRunRequest, context: Context
    ) -> run_pb2.Run:
        await refuse_missing_values(request, namespace_of(request), self._values)
        return await self._engine.start_run(namespace_of(request), request, caller_of(context))


def query_of(
    run_filter: run_service_pb2.RunFilter,
    *,
    after: tuple[Instant, str] | None = None,
    limit: int = 50,
) -> RunQuery:
    """Return a filter as storage understands it."""
    graph = GraphReference.parse(run_filter.graph) if run_filter.graph else GraphReference()
    has_min, has_max = (
        run_filter.HasField("create_time_min"),
        run_filter.HasField("create_time_max"),
    )
    return RunQuery(
        statuses=frozenset(run_filter.statuses),
        graph_digest=graph.digest,
        graph_name=graph.name,
        graph_version=graph.version,
        labels=dict(run_filter.labels),
        create_min=from_timestamp(run_filter.create_time_min) if has_min else None,
        create_max=from_timestamp(run_filter.create_time_max) if has_max else None,
        roots_only=run_filter.roots_only,
        after=after,
        limit=limit,
    )


def _position(runs: Sequence[run_pb2.Run]) -> paging.Position:
    return from_timestamp(runs[-1].create_time), runs[-1].run_id
