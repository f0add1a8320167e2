"""A program that uses every RPC, to be run under `opentelemetry-instrument`: python -m tests.support.otlp_every_rpc SERVER.

It prints one line for each thing that went as it should, and `all done` at its end; what goes wrong is a traceback.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import TYPE_CHECKING

import grpc
import grpc.aio
from google.protobuf.message_factory import GetMessageClass
from opentelemetry import trace

from stepgraph.v1 import (
    executor_service_pb2,
    graph_service_pb2,
    interrupt_service_pb2,
    run_service_pb2,
    value_service_pb2,
)
from stepgraph.v1.event_pb2 import RunEvent
from stepgraph.v1.executor_service_pb2_grpc import ExecutorServiceStub
from stepgraph.v1.run_service_pb2_grpc import RunServiceStub
from stepgraph_client import Client, Executor, Graph, proceed
from tests.support.hellos import hello

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from google.protobuf.descriptor import MethodDescriptor

    from stepgraph.v1.graph_pb2 import StateGraph

MODULES = (
    executor_service_pb2,
    graph_service_pb2,
    interrupt_service_pb2,
    run_service_pb2,
    value_service_pb2,
)
#: What a server that is well may answer to a request that says nothing.
EXPECTED = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNIMPLEMENTED,
    # What goes on until somebody ends it.
    grpc.StatusCode.CANCELLED,
}
#: More than an event may hold, so it is written and read apart.
LARGE = "x" * 700_000


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201


def approved() -> Graph:
    graph = Graph("approved")
    graph.tool("act", "act", {}, output="acted")
    graph.approval("sure", "Sure?")
    graph.assign("done")
    graph.chain("act", "sure", "done")
    graph.end("done")
    return graph


async def do_work(address: str) -> None:
    """Start, watch, answer and read a run whose values are large."""
    executor = Executor(address, executor_id="instrumented", drain_timeout_s=1)
    spans: list[str] = []

    @executor.tool()
    async def act() -> str:
        current = trace.get_current_span().get_span_context()
        spans.append(f"{current.trace_id:032x}")
        return LARGE

    async with Client(address) as client, asyncio.TaskGroup() as working:
        working.create_task(executor.run())
        await executor.connected()
        with trace.get_tracer("program").start_as_current_span("caller") as caller:
            run = await client.start_run(approved(), run_id="r1", input=LARGE)
        async for event in run.events():
            if isinstance(event, RunEvent) and event.HasField("interrupt_opened"):
                await client.answer(event.interrupt_opened.question.interrupt_id, proceed())
        assert (await run.wait()).status == 6, "it did not complete"
        acted = (await run.state()).state.variables["acted"]
        assert await client.get_value(acted) == LARGE, "a value was lost"
        assert [each.executor_id async for each in client.executors()] == ["instrumented"]
        context = caller.get_span_context()
        # A program that is not instrumented has no trace; then the run has one of its own.
        assert not context.is_valid or spans == [f"{context.trace_id:032x}"], (spans, context)
        executor.stop()
    say("worked")


async def call_everything(channel: grpc.aio.Channel) -> None:
    """Send nothing to every method, and see that it is answered as ever."""
    for module in MODULES:
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                code = await _code(channel, f"/{service.full_name}/{method.name}", method)
                assert code in EXPECTED, f"{method.name}: {code}"
    say("called everything")


async def _code(channel: grpc.aio.Channel, path: str, method: MethodDescriptor) -> grpc.StatusCode:
    shape = ("stream" if method.client_streaming else "unary") + (
        "_stream" if method.server_streaming else "_unary"
    )
    response = GetMessageClass(method.output_type)
    make = getattr(channel, shape)(
        path,
        request_serializer=lambda message: message,
        response_deserializer=response.FromString,
    )

    async def requests() -> AsyncIterator[bytes]:
        yield b""

    call = make(requests() if method.client_streaming else b"")
    try:
        if method.server_streaming:
            async with asyncio.timeout(0.5):
                async for _ in call:
                    pass
        else:
            await call
    except TimeoutError:
        call.cancel()
    except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
        return error.code() if isinstance(error, grpc.aio.AioRpcError) else await call.code()
    return grpc.StatusCode.OK


async def leave_streams(channel: grpc.aio.Channel) -> None:
    """Leave many streams half-way."""
    runs = RunServiceStub(channel)
    asked = run_service_pb2.StartRunRequest(run_id="open")
    asked.graph.definition.CopyFrom(open_graph())
    await runs.StartRun(asked)
    watches = [runs.WatchRun(run_service_pb2.WatchRunRequest(run_id="open")) for _ in range(100)]
    for watch in watches:
        await anext(aiter(watch))
    sessions = []
    for number in range(10):
        first = executor_service_pb2.ConnectRequest(
            hello=hello(executor_id=f"e{number}", token=b"%016d" % number)
        )

        async def frames(
            first: executor_service_pb2.ConnectRequest = first,
        ) -> AsyncIterator[executor_service_pb2.ConnectRequest]:
            yield first
            await asyncio.Event().wait()

        session = ExecutorServiceStub(channel).Connect(frames())
        await anext(aiter(session))
        sessions.append(session)
    for call in (*watches, *sessions):
        call.cancel()
    await asyncio.sleep(0.2)  # the server hears of it
    gc.collect()
    say("left all streams")


def open_graph() -> StateGraph:
    graph = Graph("open")
    graph.approval("sure", "Sure?")
    return graph.build()


async def main(address: str) -> None:
    await do_work(address)
    async with grpc.aio.insecure_channel(address) as channel:
        await call_everything(channel)
        await leave_streams(channel)
    say("all done")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
