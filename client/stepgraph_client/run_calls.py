"""Calls about runs, and `RunHandle`, a run that one holds on to.

Rules: a call that changes something carries one request id, made once, through all its retries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from stepgraph.v1 import run_service_pb2
from stepgraph.v1.run_pb2 import RunStatus
from stepgraph.v1.run_service_pb2 import WatchView
from stepgraph.v1.state_pb2 import GraphState
from stepgraph_client.call_groups import PAGE_SIZE, CallGroup
from stepgraph_client.errors import RunCancelled, RunFailed
from stepgraph_client.identity import new_request_id
from stepgraph_client.keywords import check_names
from stepgraph_client.requests import (
    ForkOptions,
    RunFilterOptions,
    RunOptions,
    fork_request,
    run_filter,
    start_request,
)
from stepgraph_client.values import from_value
from stepgraph_client.watching import Event, Follower, RunNews, SequenceCursor, TokenCursor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from stepgraph.v1.run_pb2 import Run
    from stepgraph.v1.run_service_pb2 import ActivationState, StartRunRequest
    from stepgraph.v1.state_pb2 import GraphExecutionResult
    from stepgraph_client.graphs import GraphSource
    from stepgraph_client.watching import OnLost, Stream

FINAL = frozenset(
    {
        RunStatus.RUN_STATUS_COMPLETED,
        RunStatus.RUN_STATUS_FAILED,
        RunStatus.RUN_STATUS_CANCELLED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The state of a run after an event: all pages of it as one.

    `state` has the shared part and the carried part of the last node; `activations` the carried parts of live nodes;
    `result` how the run ended, None while it lives.
    """

    sequence: int
    state: GraphState
    activations: tuple[ActivationState, ...]
    result: GraphExecutionResult | None

    @property
    def variables(self) -> dict[str, object]:
        """The variables as Python values; large ones as the references that they are."""
        return {name: from_value(value) for name, value in self.state.variables.items()}


class RunCalls(CallGroup):
    """Starts, reads, watches and steers runs."""

    # Start and read ---------------------------------------------------------------------------------------------

    async def start_run(self, graph: GraphSource, **options: Unpack[RunOptions]) -> RunHandle:
        """Start a run; when this returns, the run is durable.

        `graph` is a reference (`name`, `name@3`, `sha256:…`), a definition, or a builder.

        Raises:
            NotFound: there is no such graph, or no run to continue from.
            AlreadyExists: there is a run with this id.
            GraphInvalid: the definition is broken.
        """
        check_names("start_run()", options, RunOptions)
        request = await self._start_request(graph, options)
        response = await self._caller.unary(self._stubs.runs.StartRun, request)
        return RunHandle(self, response.run)

    async def _start_request(self, graph: GraphSource, options: RunOptions) -> StartRunRequest:
        value = await self.as_value(options["input"]) if "input" in options else None
        variables = {
            name: await self.as_value(given) for name, given in options.get("variables", {}).items()
        }
        request = start_request(graph, options, value, variables)
        request.namespace = self.namespace
        request.request_id = request.request_id or new_request_id()
        return request

    async def run(self, run_id: str) -> RunHandle:
        """Return a handle for a run that exists.

        Raises:
            NotFound: there is none, or it was deleted.
        """
        return RunHandle(self, await self.get_run(run_id))

    async def get_run(self, run_id: str) -> Run:
        """Read a run's row."""
        request = run_service_pb2.GetRunRequest(namespace=self.namespace, run_id=run_id)
        response = await self._caller.unary(self._stubs.runs.GetRun, request)
        return response.run

    async def list_runs(self, **which: Unpack[RunFilterOptions]) -> AsyncIterator[Run]:
        """Yield runs, newest first."""
        check_names("list_runs()", which, RunFilterOptions)
        request = run_service_pb2.ListRunsRequest(
            namespace=self.namespace, filter=run_filter(which), page_size=PAGE_SIZE
        )
        async for page in self._pages(self._stubs.runs.ListRuns, request):
            for run in page.runs:
                yield run

    async def state(self, run_id: str, sequence: int = 0) -> RunState:
        """Read the state of a run after an event; 0 means the last one. All pages are joined."""
        request = run_service_pb2.GetRunStateRequest(
            namespace=self.namespace, run_id=run_id, sequence=sequence
        )
        pages = [page async for page in self._pages(self._stubs.runs.GetRunState, request)]
        first = pages[0]
        state = GraphState()
        state.CopyFrom(first.state)
        for page in pages[1:]:
            state.conversation.messages.extend(page.state.conversation.messages)
            for name, value in page.state.variables.items():
                state.variables[name].CopyFrom(value)
        return RunState(
            sequence=first.sequence,
            state=state,
            activations=tuple(first.activations),
            result=first.result if first.HasField("result") else None,
        )

    async def explain(self, run_id: str) -> run_service_pb2.ExplainRunResponse:
        """Say what a run waits for."""
        request = run_service_pb2.ExplainRunRequest(namespace=self.namespace, run_id=run_id)
        return await self._caller.unary(self._stubs.runs.ExplainRun, request)

    # Watch ------------------------------------------------------------------------------------------------------

    def watch(
        self,
        run_id: str,
        after_sequence: int = 0,
        *,
        view: WatchView.ValueType = WatchView.WATCH_VIEW_FULL,
        history_only: bool = False,
        on_lost: OnLost | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Yield all events of a run after a sequence, then what happens, until the run is over.

        There is no gap and no duplicate, whatever happens to connections and servers: it goes on by itself. Transient
        events (deltas) come in between and may be missing after a lost connection; what they showed of a discarded attempt does not
        count. `on_lost` is told when the connection was lost and is about to be tried again.

        Raises:
            NotFound: there is no such run.
            InvalidRequest: SEQUENCE_OUT_OF_RANGE: the run has no such event.
            ServerFault: RUN_QUARANTINED, after what is readable.
        """
        cursor = SequenceCursor(run_id, after_sequence)

        def open_stream() -> Stream[run_service_pb2.WatchRunResponse]:
            request = run_service_pb2.WatchRunRequest(
                namespace=self.namespace,
                run_id=run_id,
                after_sequence=cursor.after_sequence,
                view=view,
                history_only=history_only,
            )
            return self._stubs.runs.WatchRun(request)

        follower = Follower(
            self._caller, cursor, open_stream, patience=self._watch_patience, on_lost=on_lost
        )
        return follower.items()

    def watch_tree(
        self,
        run_id: str,
        *,
        resume_token: str = "",
        view: WatchView.ValueType = WatchView.WATCH_VIEW_FULL,
    ) -> AsyncGenerator[RunNews, None]:
        """Yield the events of a run and of its child runs; see `watch`."""
        cursor = TokenCursor(resume_token)

        def open_stream() -> Stream[run_service_pb2.WatchRunResponse]:
            request = run_service_pb2.WatchRunRequest(
                namespace=self.namespace,
                run_id=run_id,
                include_descendants=True,
                resume_token=cursor.resume_token,
                view=view,
            )
            return self._stubs.runs.WatchRun(request)

        follower = Follower(self._caller, cursor, open_stream, patience=self._watch_patience)
        return follower.items()

    def watch_runs(
        self,
        *,
        resume_token: str = "",
        view: WatchView.ValueType = WatchView.WATCH_VIEW_FULL,
        **which: Unpack[RunFilterOptions],
    ) -> AsyncGenerator[RunNews, None]:
        """Yield what happens in all runs that match, from now or from a token on, for as long as you like."""
        check_names("watch_runs()", which, RunFilterOptions)
        cursor = TokenCursor(resume_token)

        def open_stream() -> Stream[run_service_pb2.WatchRunsResponse]:
            request = run_service_pb2.WatchRunsRequest(
                namespace=self.namespace,
                filter=run_filter(which),
                resume_token=cursor.resume_token,
                view=view,
            )
            return self._stubs.runs.WatchRuns(request)

        follower = Follower(self._caller, cursor, open_stream, patience=self._watch_patience)
        return follower.items()

    async def watch_position(self, **which: Unpack[RunFilterOptions]) -> str:
        """Return where a watch of these runs begins if it begins now: what to give `watch_runs` after reading something else first."""
        check_names("watch_position()", which, RunFilterOptions)
        request = run_service_pb2.WatchRunsRequest(
            namespace=self.namespace, filter=run_filter(which), view=WatchView.WATCH_VIEW_FULL
        )

        async def ask() -> str:
            call = self._stubs.runs.WatchRuns(request)
            try:
                async for response in call:
                    return response.resume_token
            finally:
                call.cancel()
            return ""

        return await self._caller.retried(ask)

    # Steer ------------------------------------------------------------------------------------------------------

    async def cancel(self, run_id: str, reason: str = "") -> Run:
        """Stop a run. Cancelling one that is being stopped, or was cancelled, is fine.

        Raises:
            WrongState: RUN_ENDED: it is COMPLETED or FAILED.
        """
        request = run_service_pb2.CancelRunRequest(
            namespace=self.namespace, run_id=run_id, reason=reason, request_id=new_request_id()
        )
        response = await self._caller.unary(self._stubs.runs.CancelRun, request)
        return response.run

    async def pause(self, run_id: str, reason: str = "") -> Run:
        """Keep anything new of a run from starting."""
        request = run_service_pb2.PauseRunRequest(
            namespace=self.namespace, run_id=run_id, reason=reason, request_id=new_request_id()
        )
        response = await self._caller.unary(self._stubs.runs.PauseRun, request)
        return response.run

    async def unpause(self, run_id: str) -> Run:
        """Let a paused run go on."""
        request = run_service_pb2.UnpauseRunRequest(
            namespace=self.namespace, run_id=run_id, request_id=new_request_id()
        )
        response = await self._caller.unary(self._stubs.runs.UnpauseRun, request)
        return response.run

    async def signal(
        self, run_id: str, name: str, payload: object = None, *, correlation: str = ""
    ) -> Run:
        """Send a signal to a run's tree; it may come before anyone waits for it."""
        request = run_service_pb2.SignalRunRequest(
            namespace=self.namespace,
            run_id=run_id,
            name=name,
            correlation=correlation,
            payload=None if payload is None else await self.as_value(payload),
            request_id=new_request_id(),
        )
        response = await self._caller.unary(self._stubs.runs.SignalRun, request)
        return response.run

    async def fork(self, run_id: str, **options: Unpack[ForkOptions]) -> RunHandle:
        """Make a new run from a run's prefix, on request with changes."""
        check_names("fork()", options, ForkOptions)
        request = fork_request(run_id, options)
        request.namespace = self.namespace
        request.request_id = request.request_id or new_request_id()
        response = await self._caller.unary(self._stubs.runs.ForkRun, request)
        return RunHandle(self, response.run)

    async def retry(self, run_id: str, new_run_id: str = "") -> RunHandle:
        """Make a new run that starts just before a FAILED run's failure."""
        request = run_service_pb2.RetryRunRequest(
            namespace=self.namespace,
            run_id=run_id,
            new_run_id=new_run_id,
            request_id=new_request_id(),
        )
        response = await self._caller.unary(self._stubs.runs.RetryRun, request)
        return RunHandle(self, response.run)

    async def delete(self, run_id: str) -> None:
        """Delete a run that is over, with its child runs."""
        request = run_service_pb2.DeleteRunRequest(
            namespace=self.namespace, run_id=run_id, request_id=new_request_id()
        )
        await self._caller.unary(self._stubs.runs.DeleteRun, request)


class RunHandle:
    """A run that one holds on to. `run` is its row as it was last read."""

    def __init__(self, client: RunCalls, run: Run) -> None:
        self._client = client
        self.run = run

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.run.run_id

    def events(self, after_sequence: int = 0) -> AsyncGenerator[Event, None]:
        """Yield what happened and happens, until the run is over; see `Client.watch`."""
        return self._client.watch(self.run_id, after_sequence)

    async def wait(self) -> Run:
        """Wait until the run is over, however it ends, and return its row."""
        while self.run.status not in FINAL:
            # Only the end matters, so nothing of the payloads is sent.
            async for _ in self._client.watch(
                self.run_id, self.run.last_sequence, view=WatchView.WATCH_VIEW_SUMMARY
            ):
                pass
            self.run = await self._client.get_run(self.run_id)
        return self.run

    async def result(self) -> object:
        """Wait until the run is over, and return its output as Python has it; None if it has none.

        Raises:
            RunFailed: it FAILED.
            RunCancelled: it was CANCELLED, or a person said no.
        """
        run = await self.wait()
        if run.status == RunStatus.RUN_STATUS_FAILED:
            raise RunFailed(run)
        if run.status == RunStatus.RUN_STATUS_CANCELLED:
            raise RunCancelled(run)
        return await self._client.get_value(run.result.output)

    async def state(self, sequence: int = 0) -> RunState:
        """Read the state; see `Client.state`."""
        return await self._client.state(self.run_id, sequence)

    async def cancel(self, reason: str = "") -> Run:
        """Stop the run; see `Client.cancel`."""
        self.run = await self._client.cancel(self.run_id, reason)
        return self.run
