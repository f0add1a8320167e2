"""The services of the fake server, but for runs: thin, and only as true as tests need."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import grpc

from stepgraph.v1 import executor_service_pb2 as executors_pb
from stepgraph.v1 import executor_service_pb2_grpc as executors_grpc
from stepgraph.v1 import graph_service_pb2 as graphs_pb
from stepgraph.v1 import graph_service_pb2_grpc as graphs_grpc
from stepgraph.v1 import interrupt_service_pb2 as interrupts_pb
from stepgraph.v1 import interrupt_service_pb2_grpc as interrupts_grpc
from stepgraph.v1 import value_service_pb2 as values_pb
from stepgraph.v1 import value_service_pb2_grpc as values_grpc
from stepgraph.v1.interrupt_pb2 import Interrupt, InterruptStatus
from stepgraph.v1.run_pb2 import GraphVersion
from stepgraph.v1.value_pb2 import StoredValue
from tests.support.refusals import Context, Refusal, end, lose

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from stepgraph.v1.graph_pb2 import StateGraph
    from tests.support.fake_server import FakeServer

#: Pages are short, so that every list has several.
PAGE = 2


def page_of(items: Sequence[Any], token: str) -> tuple[Sequence[Any], str]:
    start = int(token or "0")
    following = start + PAGE
    return items[start:following], str(following) if following < len(items) else ""


class Graphs(graphs_grpc.GraphServiceServicer):
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
        page, following = page_of(latest, request.page_token)
        return graphs_pb.ListGraphsResponse(versions=page, next_page_token=following)

    async def ListGraphVersions(  # noqa: N802
        self, request: graphs_pb.ListGraphVersionsRequest, context: Context
    ) -> graphs_pb.ListGraphVersionsResponse:
        await self._fake.admit("ListGraphVersions", request, context)
        versions = await self._versions(request.name, context)
        numbered = [_version(each, number) for number, each in enumerate(versions, 1)][::-1]
        page, following = page_of(numbered, request.page_token)
        return graphs_pb.ListGraphVersionsResponse(versions=page, next_page_token=following)

    async def RenderGraph(  # noqa: N802
        self, request: graphs_pb.RenderGraphRequest, context: Context
    ) -> graphs_pb.RenderGraphResponse:
        await self._fake.admit("RenderGraph", request, context)
        return graphs_pb.RenderGraphResponse(mermaid="flowchart TD")


def _version(graph: StateGraph, number: int) -> GraphVersion:
    digest = hashlib.sha256(f"{graph.name}{number}".encode()).hexdigest()
    return GraphVersion(name=graph.name, version=number, digest=f"sha256:{digest}")


class Interrupts(interrupts_grpc.InterruptServiceServicer):
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
        page, following = page_of(found, request.page_token)
        return interrupts_pb.ListInterruptsResponse(questions=page, next_page_token=following)


class Executors(executors_grpc.ExecutorServiceServicer):
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
        page, following = page_of(self._fake.executors, request.page_token)
        return executors_pb.ListExecutorsResponse(executors=page, next_page_token=following)


class Values(values_grpc.ValueServiceServicer):
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
        await lose(context, late)
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
        await lose(context, late)
        yield values_pb.ReadValueResponse(chunk=rest[half:])
