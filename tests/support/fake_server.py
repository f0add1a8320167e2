"""A server that plays back what a test wrote down, over real gRPC, and fails where the test says so.

It has no engine: runs are lists of events that a test adds to. It runs on a thread of its own, so that commands, which bring
their own event loop, can be tested against it as well.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from stepgraph.v1 import executor_service_pb2 as executors_pb
from stepgraph.v1 import executor_service_pb2_grpc as executors_grpc
from stepgraph.v1 import graph_service_pb2 as graphs_pb
from stepgraph.v1 import graph_service_pb2_grpc as graphs_grpc
from stepgraph.v1 import interrupt_service_pb2_grpc as interrupts_grpc
from stepgraph.v1 import run_service_pb2 as runs_pb
from stepgraph.v1 import run_service_pb2_grpc as runs_grpc
from stepgraph.v1 import value_service_pb2_grpc as values_grpc
from stepgraph.v1.event_pb2 import RunEvent, TransientEvent
from stepgraph.v1.run_pb2 import GraphVersion, Run, RunStatus
from stepgraph.v1.state_pb2 import GraphExecutionResult, GraphState
from stepgraph.v1.value_pb2 import StoredValue, Value
from tests.support.fake_services import Executors, Graphs, Interrupts, Values, page_of
from tests.support.refusals import LOST, Context, Refusal, end, lose

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from stepgraph.v1.graph_pb2 import StateGraph
    from stepgraph.v1.interrupt_pb2 import Interrupt


@dataclass(slots=True, kw_only=True)
class FakeRun:
    """A run: its row, and the events so far. `cuts` are after how many events each next watch is cut off."""

    run: Run
    events: list[RunEvent | TransientEvent] = field(default_factory=list)
    cuts: deque[int] = field(default_factory=deque)

    def add(self, *events: RunEvent | TransientEvent) -> None:
        """Let something happen; sequences are filled in."""
        for event in events:
            if isinstance(event, RunEvent):
                self.run.last_sequence += 1
                event.sequence = event.sequence or self.run.last_sequence
            self.events.append(event)
            # Last: a watch on the other thread ends once the run is over.
            if isinstance(event, RunEvent):
                self._fold(event)

    def _fold(self, event: RunEvent) -> None:
        ends = {
            "run_completed": RunStatus.RUN_STATUS_COMPLETED,
            "run_failed": RunStatus.RUN_STATUS_FAILED,
            "run_cancelled": RunStatus.RUN_STATUS_CANCELLED,
        }
        kind = event.WhichOneof("kind") or ""
        if kind not in ends:
            return
        self.run.status = ends[kind]
        end = getattr(event, kind)
        self.run.result.CopyFrom(end.result)
        if kind != "run_completed":
            self.run.failure.CopyFrom(end.failure)

    def complete(self, output: str = "") -> None:
        """End the run well."""
        result = GraphExecutionResult(completed=True, iterations=1)
        if output:
            result.output.CopyFrom(Value(text=output))
        event = RunEvent()
        event.run_completed.result.CopyFrom(result)
        self.add(event)

    @property
    def over(self) -> bool:
        """Whether the run is final."""
        return self.run.status >= RunStatus.RUN_STATUS_COMPLETED


class FakeServer:
    """The services of stepgraph.v1 over what a test put into the attributes."""

    def __init__(self) -> None:
        self.runs: dict[str, FakeRun] = {}
        self.script: list[RunEvent | TransientEvent] = []
        self.output = "done"
        self.states: dict[str, list[runs_pb.GetRunStateResponse]] = {}
        self.graphs: dict[str, list[StateGraph]] = {}
        self.problems: list[graphs_pb.GraphProblem] = []
        self.warnings: list[graphs_pb.GraphProblem] = []
        self.questions: dict[str, Interrupt] = {}
        self.executors: list[executors_pb.Executor] = []
        self.values: dict[str, tuple[StoredValue, bytes]] = {}
        self.requests: dict[str, list[Any]] = defaultdict(list)
        self.done: dict[str, Any] = {}
        self.refusals: dict[str, deque[Refusal]] = defaultdict(deque)
        self.news: list[runs_pb.WatchRunsResponse] = []
        self.address = ""
        self._stop = threading.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def refuse(self, method: str, *refusals: Refusal) -> None:
        """Let the next calls of a method end like this."""
        self.refusals[method].extend(refusals)

    def add_run(self, run_id: str, *events: RunEvent | TransientEvent, **row: Any) -> FakeRun:
        """Add a run with some events."""
        row.setdefault("status", RunStatus.RUN_STATUS_RUNNING)
        run = FakeRun(run=Run(run_id=run_id, namespace="default", **row))
        run.add(*events)
        self.runs[run_id] = run
        return run

    def start(self) -> None:
        """Begin to serve; `address` is where."""
        self._thread.start()
        assert self._started.wait(10), "the fake server did not start"

    def stop(self) -> None:
        """End all calls and the thread."""
        self._stop.set()
        self._thread.join(10)

    async def _serve(self) -> None:
        server = grpc.aio.server()
        runs_grpc.add_RunServiceServicer_to_server(_Runs(self), server)
        graphs_grpc.add_GraphServiceServicer_to_server(Graphs(self), server)
        interrupts_grpc.add_InterruptServiceServicer_to_server(Interrupts(self), server)
        executors_grpc.add_ExecutorServiceServicer_to_server(Executors(self), server)
        values_grpc.add_ValueServiceServicer_to_server(Values(self), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        self.address = f"127.0.0.1:{port}"
        self._started.set()
        while not self._stop.is_set():  # noqa: ASYNC110  (set by another thread)
            await asyncio.sleep(0.005)
        await server.stop(0)

    async def admit(self, method: str, request: Any, context: Context) -> Refusal | None:
        """Remember a request; end it if a test wants so. Returns a late refusal, for `lose`."""
        copy = type(request)()
        copy.CopyFrom(request)
        self.requests[method].append(copy)
        if not self.refusals[method]:
            return None
        refusal = self.refusals[method].popleft()
        if refusal.late:
            return refusal
        await end(context, refusal)
        return None


class _Runs(runs_grpc.RunServiceServicer):
    def __init__(self, fake: FakeServer) -> None:
        self._fake = fake

    async def StartRun(  # noqa: N802
        self, request: runs_pb.StartRunRequest, context: Context
    ) -> runs_pb.StartRunResponse:
        fake = self._fake
        late = await fake.admit("StartRun", request, context)
        if request.request_id in fake.done:
            return runs_pb.StartRunResponse(run=fake.done[request.request_id])
        run_id = request.run_id or f"run-{len(fake.runs) + 1}"
        if run_id in fake.runs:
            refusal = Refusal(
                code=grpc.StatusCode.ALREADY_EXISTS,
                reason="RUN_EXISTS",
                message=f"run {run_id} exists; choose another id",
                metadata={"run_id": run_id},
            )
            await end(context, refusal)
        graph = GraphVersion(name=request.graph.reference or request.graph.definition.name)
        run = fake.add_run(run_id, *fake.script, graph=graph, labels=dict(request.labels))
        fake.done[request.request_id] = run.run
        if not run.over:
            run.complete(fake.output)
        await lose(context, late)
        return runs_pb.StartRunResponse(run=run.run)

    async def StartAndWatchRun(  # noqa: N802
        self, request: runs_pb.StartAndWatchRunRequest, context: Context
    ) -> AsyncIterator[runs_pb.StartAndWatchRunResponse]:
        await end(context, Refusal(code=grpc.StatusCode.UNIMPLEMENTED))
        yield runs_pb.StartAndWatchRunResponse()

    async def _found(self, run_id: str, context: Context) -> FakeRun:
        if run_id not in self._fake.runs:
            refusal = Refusal(
                code=grpc.StatusCode.NOT_FOUND,
                reason="RUN_NOT_FOUND",
                message=f"there is no run {run_id}",
                metadata={"run_id": run_id},
            )
            await end(context, refusal)
        return self._fake.runs[run_id]

    async def GetRun(  # noqa: N802
        self, request: runs_pb.GetRunRequest, context: Context
    ) -> runs_pb.GetRunResponse:
        await self._fake.admit("GetRun", request, context)
        return runs_pb.GetRunResponse(run=(await self._found(request.run_id, context)).run)

    async def ListRuns(  # noqa: N802
        self, request: runs_pb.ListRunsRequest, context: Context
    ) -> runs_pb.ListRunsResponse:
        await self._fake.admit("ListRuns", request, context)
        wanted = request.filter.statuses
        runs = [each.run for each in self._fake.runs.values()]
        runs = [run for run in runs if not wanted or run.status in wanted]
        page, following = page_of(runs, request.page_token)
        return runs_pb.ListRunsResponse(runs=page, next_page_token=following)

    async def WatchRun(  # noqa: N802
        self, request: runs_pb.WatchRunRequest, context: Context
    ) -> AsyncIterator[runs_pb.WatchRunResponse]:
        await self._fake.admit("WatchRun", request, context)
        run = await self._found(request.run_id, context)
        left = run.cuts.popleft() if run.cuts else -1
        yield runs_pb.WatchRunResponse()
        at = 0
        while True:
            over = run.over
            for event in run.events[at:]:
                at += 1
                if isinstance(event, RunEvent) and event.sequence <= request.after_sequence:
                    continue
                if left == 0:
                    await end(context, LOST)
                left -= 1
                yield _watched(run.run.run_id, event)
            if over or request.history_only:
                return
            await asyncio.sleep(0.002)

    async def WatchRuns(  # noqa: N802
        self, request: runs_pb.WatchRunsRequest, context: Context
    ) -> AsyncIterator[runs_pb.WatchRunsResponse]:
        await self._fake.admit("WatchRuns", request, context)
        start = int(request.resume_token or "0")
        for index, response in enumerate(self._fake.news[start:], start + 1):
            response.resume_token = str(index)
            yield response

    async def GetRunState(  # noqa: N802
        self, request: runs_pb.GetRunStateRequest, context: Context
    ) -> runs_pb.GetRunStateResponse:
        await self._fake.admit("GetRunState", request, context)
        pages = self._fake.states.get(request.run_id)
        if pages is None:
            await self._found(request.run_id, context)
            return runs_pb.GetRunStateResponse(state=GraphState())
        index = int(request.page_token or "0")
        page = pages[index]
        page.next_page_token = str(index + 1) if index + 1 < len(pages) else ""
        return page

    async def CancelRun(  # noqa: N802
        self, request: runs_pb.CancelRunRequest, context: Context
    ) -> runs_pb.CancelRunResponse:
        await self._fake.admit("CancelRun", request, context)
        run = await self._found(request.run_id, context)
        run.run.status = RunStatus.RUN_STATUS_STOPPING
        return runs_pb.CancelRunResponse(run=run.run)

    async def PauseRun(  # noqa: N802
        self, request: runs_pb.PauseRunRequest, context: Context
    ) -> runs_pb.PauseRunResponse:
        await self._fake.admit("PauseRun", request, context)
        run = await self._found(request.run_id, context)
        run.run.status = RunStatus.RUN_STATUS_PAUSED
        return runs_pb.PauseRunResponse(run=run.run)

    async def UnpauseRun(  # noqa: N802
        self, request: runs_pb.UnpauseRunRequest, context: Context
    ) -> runs_pb.UnpauseRunResponse:
        await self._fake.admit("UnpauseRun", request, context)
        run = await self._found(request.run_id, context)
        run.run.status = RunStatus.RUN_STATUS_RUNNING
        return runs_pb.UnpauseRunResponse(run=run.run)

    async def SignalRun(  # noqa: N802
        self, request: runs_pb.SignalRunRequest, context: Context
    ) -> runs_pb.SignalRunResponse:
        await self._fake.admit("SignalRun", request, context)
        return runs_pb.SignalRunResponse(run=(await self._found(request.run_id, context)).run)

    async def ForkRun(  # noqa: N802
        self, request: runs_pb.ForkRunRequest, context: Context
    ) -> runs_pb.ForkRunResponse:
        await self._fake.admit("ForkRun", request, context)
        run = self._fake.add_run(request.new_run_id or f"{request.run_id}-fork")
        return runs_pb.ForkRunResponse(run=run.run)

    async def RetryRun(  # noqa: N802
        self, request: runs_pb.RetryRunRequest, context: Context
    ) -> runs_pb.RetryRunResponse:
        await self._fake.admit("RetryRun", request, context)
        run = self._fake.add_run(request.new_run_id or f"{request.run_id}-retry")
        return runs_pb.RetryRunResponse(run=run.run)

    async def ExplainRun(  # noqa: N802
        self, request: runs_pb.ExplainRunRequest, context: Context
    ) -> runs_pb.ExplainRunResponse:
        await self._fake.admit("ExplainRun", request, context)
        run = await self._found(request.run_id, context)
        wait = runs_pb.Wait(task_id="1/think", description="waits for an executor")
        wait.requirement.llm.model = "m"
        return runs_pb.ExplainRunResponse(run=run.run, waits=[] if run.over else [wait])

    async def DeleteRun(  # noqa: N802
        self, request: runs_pb.DeleteRunRequest, context: Context
    ) -> runs_pb.DeleteRunResponse:
        await self._fake.admit("DeleteRun", request, context)
        await self._found(request.run_id, context)
        del self._fake.runs[request.run_id]
        return runs_pb.DeleteRunResponse()


def _watched(run_id: str, event: RunEvent | TransientEvent) -> runs_pb.WatchRunResponse:
    batch = runs_pb.WatchBatch(run_id=run_id)
    if isinstance(event, RunEvent):
        batch.events.append(event)
    else:
        batch.transient_events.append(event)
    return runs_pb.WatchRunResponse(batches=[batch])


def run_event(sequence: int = 0, /, **kind: Any) -> RunEvent:
    """Return an event of one kind, such as `run_event(superstep_started=SuperstepStarted(…))`."""
    return RunEvent(sequence=sequence, **kind)


def unknown_event(sequence: int = 0) -> RunEvent:
    """Return an event whose kind is newer than this version: an unknown field, as it comes over the wire."""
    event = RunEvent(sequence=sequence)
    # Field 900, length-delimited, empty.
    event.MergeFromString(b"\xa2\x38\x00")
    assert event.WhichOneof("kind") is None
    return event


def text_of(events: Iterable[Any]) -> list[str]:
    """Return the kinds of events, for comparing."""
    return [event.WhichOneof("kind") or "?" for event in events]
