"""A server that plays back what a test wrote down, over real gRPC, and fails where the test says so.

It has no engine: runs are lists of events that a test adds to. It runs on a thread of its own, so that commands, which bring
their own event loop, can be tested against it as well.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

from stepgraph.v1 import executor_service_pb2 as executors_pb
from stepgraph.v1 import executor_service_pb2_grpc as executors_grpc
from stepgraph.v1 import graph_service_pb2 as graphs_pb
from stepgraph.v1 import graph_service_pb2_grpc as graphs_grpc
from stepgraph.v1 import interrupt_service_pb2 as interrupts_pb
from stepgraph.v1 import interrupt_service_pb2_grpc as interrupts_grpc
from stepgraph.v1 import run_service_pb2 as runs_pb
from stepgraph.v1 import run_service_pb2_grpc as runs_grpc
from stepgraph.v1 import value_service_pb2 as values_pb
from stepgraph.v1 import value_service_pb2_grpc as values_grpc
from stepgraph.v1.event_pb2 import RunEvent, TransientEvent
from stepgraph.v1.interrupt_pb2 import Interrupt, InterruptStatus
from stepgraph.v1.run_pb2 import GraphVersion, Run, RunStatus
from stepgraph.v1.state_pb2 import GraphExecutionResult, GraphState
from stepgraph.v1.value_pb2 import StoredValue, Value

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from stepgraph.v1.graph_pb2 import StateGraph

# Generated base classes type the context as this; see the stubs.
Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

#: Pages are short, so that every list has several.
PAGE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A status to end a call with. `late`: only after the call was carried out, as if its response was lost."""

    code: grpc.StatusCode
    reason: str = ""
    message: str = "no"
    metadata: Mapping[str, str] = field(default_factory=dict)
    violations: Sequence[tuple[str, str, str]] = ()
    retry_after_s: float | None = None
    late: bool = False


LOST = Refusal(code=grpc.StatusCode.UNAVAILABLE, message="connection reset")


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
        graphs_grpc.add_GraphServiceServicer_to_server(_Graphs(self), server)
        interrupts_grpc.add_InterruptServiceServicer_to_server(_Interrupts(self), server)
        executors_grpc.add_ExecutorServiceServicer_to_server(_Executors(self), server)
        values_grpc.add_ValueServiceServicer_to_server(_Values(self), server)
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


async def end(context: Context, refusal: Refusal) -> None:
    """End a call with a status and its details."""
    details: list[any_pb2.Any] = []
    if refusal.reason:
        info = error_details_pb2.ErrorInfo(
            reason=refusal.reason, domain="stepgraph", metadata=dict(refusal.metadata)
        )
        details.append(_packed(info))
    if refusal.violations:
        bad = error_details_pb2.BadRequest()
        for path, message, reason in refusal.violations:
            bad.field_violations.add(field=path, description=message, reason=reason)
        details.append(_packed(bad))
    if refusal.retry_after_s is not None:
        delay = duration_pb2.Duration(nanos=int(refusal.retry_after_s * 1e9))
        details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
    status = status_pb2.Status(code=refusal.code.value[0], message=refusal.message, details=details)
    trailers = (("grpc-status-details-bin", status.SerializeToString()),) if details else ()
    await context.abort(refusal.code, refusal.message, trailers)


def _packed(message: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


async def _lose(context: Context, late: Refusal | None) -> None:
    if late is not None:
        await end(context, late)


def _page(items: Sequence[Any], token: str) -> tuple[Sequence[Any], str]:
    start = int(token or "0")
    following = start + PAGE
    return items[start:following], str(following) if following < len(items) else ""


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
        await _lose(context, late)
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
        page, following = _page(runs, request.page_token)
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


class _Graphs(graphs_grpc.GraphServiceServicer):
    def __init__(self, fake: FakeServer) -> None:
        self._fake = fake

    async def RegisterGraph(  # noqa: N802
        self, request: graphs_pb.RegisterGraphRequest, context: Context
    ) -> graphs_pb.RegisterGraphResponse:
        fake = self._fake
        await fake.admit("RegisterGraph", request, context)
        if fake.problems:
            first = fake.problems[0]
            refusal = Refusal(
                code=grpc.StatusCode.INVALID_ARGUMENT,
                reason="GRAPH_INVALID",
                message="the graph is broken",
                violations=[(first.path, first.message, first.code)],
                metadata={"problems": str(len(fake.problems))},
            )
            await end(context, refusal)
        versions = fake.graphs.setdefault(request.graph.name, [])
        created = request.graph not in versions
        if created:
            versions.append(request.graph)
        number = versions.index(request.graph) + 1
        return graphs_pb.RegisterGraphResponse(
            version=_version(request.graph, number), created=created, warnings=fake.warnings
        )

    async def ValidateGraph(  # noqa: N802
        self, request: graphs_pb.ValidateGraphRequest, context: Context
    ) -> graphs_pb.ValidateGraphResponse:
        fake = self._fake
        await fake.admit("ValidateGraph", request, context)
        return graphs_pb.ValidateGraphResponse(problems=fake.problems, warnings=fake.warnings)

    async def GetGraph(  # noqa: N802
        self, request: graphs_pb.GetGraphRequest, context: Context
    ) -> graphs_pb.GetGraphResponse:
        await self._fake.admit("GetGraph", request, context)
        versions = await self._versions(request.graph, context)
        return graphs_pb.GetGraphResponse(
            version=_version(versions[-1], len(versions)), definition=versions[-1]
        )

    async def _versions(self, name: str, context: Context) -> list[StateGraph]:
        if name not in self._fake.graphs:
            refusal = Refusal(
                code=grpc.StatusCode.NOT_FOUND,
                reason="GRAPH_NOT_FOUND",
                message=f"there is no graph {name}",
                metadata={"graph": name},
            )
            await end(context, refusal)
        return self._fake.graphs[name]

    async def ListGraphs(  # noqa: N802
        self, request: graphs_pb.ListGraphsRequest, context: Context
    ) -> graphs_pb.ListGraphsResponse:
        await self._fake.admit("ListGraphs", request, context)
        latest = [
            _version(versions[-1], len(versions))
            for _, versions in sorted(self._fake.graphs.items())
        ]
        page, following = _page(latest, request.page_token)
        return graphs_pb.ListGraphsResponse(versions=page, next_page_token=following)

    async def ListGraphVersions(  # noqa: N802
        self, request: graphs_pb.ListGraphVersionsRequest, context: Context
    ) -> graphs_pb.ListGraphVersionsResponse:
        await self._fake.admit("ListGraphVersions", request, context)
        versions = await self._versions(request.name, context)
        numbered = [_version(each, number) for number, each in enumerate(versions, 1)][::-1]
        page, following = _page(numbered, request.page_token)
        return graphs_pb.ListGraphVersionsResponse(versions=page, next_page_token=following)

    async def RenderGraph(  # noqa: N802
        self, request: graphs_pb.RenderGraphRequest, context: Context
    ) -> graphs_pb.RenderGraphResponse:
        await self._fake.admit("RenderGraph", request, context)
        return graphs_pb.RenderGraphResponse(mermaid="flowchart TD")


def _version(graph: StateGraph, number: int) -> GraphVersion:
    digest = hashlib.sha256(f"{graph.name}{number}".encode()).hexdigest()
    return GraphVersion(name=graph.name, version=number, digest=f"sha256:{digest}")


class _Interrupts(interrupts_grpc.InterruptServiceServicer):
    def __init__(self, fake: FakeServer) -> None:
        self._fake = fake

    async def AnswerInterrupt(  # noqa: N802
        self, request: interrupts_pb.AnswerInterruptRequest, context: Context
    ) -> interrupts_pb.AnswerInterruptResponse:
        await self._fake.admit("AnswerInterrupt", request, context)
        question = await self._found(request.interrupt_id or request.external_token, context)
        answered = InterruptStatus.INTERRUPT_STATUS_ANSWERED
        if question.status == answered and question.answer != request.answer:
            refusal = Refusal(
                code=grpc.StatusCode.FAILED_PRECONDITION,
                reason="INTERRUPT_ANSWERED",
                message=f"{question.answered_by} was first",
                metadata={"answered_by": question.answered_by},
            )
            await end(context, refusal)
        question.status = answered
        question.answer.CopyFrom(request.answer)
        question.answered_by = request.answered_by
        return interrupts_pb.AnswerInterruptResponse(question=question)

    async def _found(self, interrupt_id: str, context: Context) -> Interrupt:
        if interrupt_id not in self._fake.questions:
            refusal = Refusal(
                code=grpc.StatusCode.NOT_FOUND,
                reason="INTERRUPT_NOT_FOUND",
                message=f"there is no question {interrupt_id}",
            )
            await end(context, refusal)
        return self._fake.questions[interrupt_id]

    async def GetInterrupt(  # noqa: N802
        self, request: interrupts_pb.GetInterruptRequest, context: Context
    ) -> interrupts_pb.GetInterruptResponse:
        await self._fake.admit("GetInterrupt", request, context)
        question = await self._found(request.interrupt_id, context)
        return interrupts_pb.GetInterruptResponse(question=question)

    async def ListInterrupts(  # noqa: N802
        self, request: interrupts_pb.ListInterruptsRequest, context: Context
    ) -> interrupts_pb.ListInterruptsResponse:
        await self._fake.admit("ListInterrupts", request, context)
        status = request.status or InterruptStatus.INTERRUPT_STATUS_OPEN
        found = [
            each
            for each in self._fake.questions.values()
            if each.status == status and request.run_id in {"", each.run_id}
        ]
        page, following = _page(found, request.page_token)
        return interrupts_pb.ListInterruptsResponse(questions=page, next_page_token=following)


class _Executors(executors_grpc.ExecutorServiceServicer):
    def __init__(self, fake: FakeServer) -> None:
        self._fake = fake

    async def Connect(  # noqa: N802
        self, request_iterator: AsyncIterator[executors_pb.ConnectRequest], context: Context
    ) -> AsyncIterator[executors_pb.ConnectResponse]:
        await end(context, Refusal(code=grpc.StatusCode.UNIMPLEMENTED))
        yield executors_pb.ConnectResponse()

    async def ReadTaskInput(  # noqa: N802
        self, request: executors_pb.ReadTaskInputRequest, context: Context
    ) -> AsyncIterator[executors_pb.ReadTaskInputResponse]:
        await end(context, Refusal(code=grpc.StatusCode.UNIMPLEMENTED))
        yield executors_pb.ReadTaskInputResponse()

    async def ListExecutors(  # noqa: N802
        self, request: executors_pb.ListExecutorsRequest, context: Context
    ) -> executors_pb.ListExecutorsResponse:
        await self._fake.admit("ListExecutors", request, context)
        page, following = _page(self._fake.executors, request.page_token)
        return executors_pb.ListExecutorsResponse(executors=page, next_page_token=following)


class _Values(values_grpc.ValueServiceServicer):
    def __init__(self, fake: FakeServer) -> None:
        self._fake = fake

    async def WriteValue(  # noqa: N802
        self, request_iterator: AsyncIterator[values_pb.WriteValueRequest], context: Context
    ) -> values_pb.WriteValueResponse:
        stored = StoredValue()
        content = bytearray()
        late: Refusal | None = None
        async for request in request_iterator:
            if request.HasField("header"):
                late = await self._fake.admit("WriteValue", request, context)
                stored.CopyFrom(request.header.value)
            else:
                content += request.chunk
        self._fake.values[stored.digest] = (stored, bytes(content))
        await _lose(context, late)
        return values_pb.WriteValueResponse(value=stored)

    async def ReadValue(  # noqa: N802
        self, request: values_pb.ReadValueRequest, context: Context
    ) -> AsyncIterator[values_pb.ReadValueResponse]:
        late = await self._fake.admit("ReadValue", request, context)
        if request.digest not in self._fake.values:
            refusal = Refusal(
                code=grpc.StatusCode.NOT_FOUND,
                reason="VALUE_NOT_FOUND",
                message="there is no such value",
                metadata={"digest": request.digest},
            )
            await end(context, refusal)
        stored, content = self._fake.values[request.digest]
        rest = content[request.offset_bytes :]
        half = len(rest) // 2
        yield values_pb.ReadValueResponse(value=stored, chunk=rest[:half])
        await _lose(context, late)
        yield values_pb.ReadValueResponse(chunk=rest[half:])


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
