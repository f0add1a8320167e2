"""Whoever wraps handlers, as instrumentation does, changes nothing; what they set is seen inside and does not leak."""

from __future__ import annotations

import asyncio
import gc
from contextvars import ContextVar

import grpc
import grpc.aio
import pytest

from stepgraph.v1 import executor_service_pb2, run_service_pb2
from stepgraph.v1.executor_service_pb2_grpc import ExecutorServiceStub
from stepgraph.v1.run_service_pb2_grpc import RunServiceStub
from stepgraph_server.storage.records import RunKey
from tests.support.failures import failure_of
from tests.support.standins import serving

TENANT = ContextVar("TENANT", default="nobody")
RUN = RunKey("default", "r1")


class Wrapping(grpc.aio.ServerInterceptor):
    """Wraps each kind of handler in the way of its kind, inside a context of its own."""

    async def intercept_service(self, continuation, details):
        handler = await continuation(details)
        tenant = dict(details.invocation_metadata).get("tenant", "nobody")

        async def single(request, context):
            TENANT.set(tenant)
            behaviour = handler.unary_unary or handler.stream_unary
            return await behaviour(request, context)

        async def stream(request, context):
            TENANT.set(tenant)
            behaviour = handler.unary_stream or handler.stream_stream
            async for response in behaviour(request, context):
                yield response

        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[handler.request_streaming, handler.response_streaming]
        return make(
            stream if handler.response_streaming else single,
            handler.request_deserializer,
            handler.response_serializer,
        )


@pytest.fixture
async def wrapped(settings, monkeypatch):
    real = grpc.aio.server
    monkeypatch.setattr(
        grpc.aio, "server", lambda **options: real(interceptors=[Wrapping()], **options)
    )
    async with (
        serving(settings) as served,
        grpc.aio.insecure_channel(served.server.address) as channel,
    ):
        yield served, channel


async def test_every_kind_of_call_works_and_streams_that_are_left_leave_nothing(wrapped, caplog):
    served, channel = wrapped
    await served.engine.create(RUN)
    runs = RunServiceStub(channel)
    assert (await runs.GetRun(run_service_pb2.GetRunRequest(run_id="r1"))).run.run_id == "r1"
    failure = await failure_of(runs.GetRun(run_service_pb2.GetRunRequest(run_id="r2")))
    assert failure.reason == "RUN_NOT_FOUND"
    session = ExecutorServiceStub(channel).Connect()
    await session.write(executor_service_pb2.ConnectRequest(hello={"executor_id": "e"}))
    await session.read()
    calls = [runs.WatchRun(run_service_pb2.WatchRunRequest(run_id="r1")) for _ in range(100)]
    for call in calls:
        await call.read()

    for call in (*calls, session):
        call.cancel()
    async with asyncio.timeout(5):
        await served.server.gate.until_empty("watch", "session")
    gc.collect()

    assert not [record for record in caplog.records if record.levelname in {"ERROR", "WARNING"}]


async def test_what_an_interceptor_sets_is_seen_by_its_call_alone(wrapped, monkeypatch):
    served, channel = wrapped
    seen = []
    start_run = served.engine.start_run

    async def remember(*args):
        seen.append(TENANT.get())
        return await start_run(*args)

    monkeypatch.setattr(served.engine, "start_run", remember)
    runs = RunServiceStub(channel)
    request = run_service_pb2.StartRunRequest(run_id="r1", graph={"reference": "g"})

    # A change runs in a task of its own, which must still know who asked for it.
    await runs.StartRun(request, metadata=(("tenant", "one"),))
    await runs.StartRun(request)

    assert seen == ["one", "nobody"]
