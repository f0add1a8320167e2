"""The server stops in order: not ready, sessions drain, watches end, calls finish."""

from __future__ import annotations

import asyncio
import time

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from stepgraph.v1 import executor_service_pb2, run_service_pb2
from stepgraph.v1.executor_service_pb2_grpc import ExecutorServiceStub
from stepgraph.v1.run_service_pb2_grpc import RunServiceStub
from stepgraph_server.config import Settings, ShutdownSettings
from stepgraph_server.core.instants import MINUTE, SECOND, Span
from stepgraph_server.storage.records import RunKey
from tests.support.failures import failure_of

RUN = RunKey("default", "r1")
HELLO = executor_service_pb2.ConnectRequest(hello={"executor_id": "e1"})


async def test_a_watch_hears_why_it_ends_and_when_to_come_back(served, channel):
    await served.engine.create(RUN)
    call = RunServiceStub(channel).WatchRun(run_service_pb2.WatchRunRequest(run_id="r1"))
    await call.read()

    await served.server.stop()

    failure = await failure_of(call)
    assert (failure.code, failure.reason) == (grpc.StatusCode.UNAVAILABLE, "SHUTTING_DOWN")
    assert failure.details["RetryInfo"].retry_delay.seconds == 1


async def test_a_session_is_drained_and_then_closed(served, channel):
    call = ExecutorServiceStub(channel).Connect()
    await call.write(HELLO)
    await call.done_writing()
    await call.read()
    [seat] = served.sessions.connected

    await served.server.stop()

    failure = await failure_of(call)
    assert (failure.code, failure.reason) == (grpc.StatusCode.UNAVAILABLE, "SHUTTING_DOWN")
    assert seat.outlet.said == ["drain", "close SHUTTING_DOWN"]


@pytest.mark.parametrize(
    "settings",
    [
        Settings(
            listen="127.0.0.1:0",
            memory=True,
            shutdown=ShutdownSettings(drain_grace=MINUTE, stop_grace=Span(SECOND)),
        )
    ],
)
async def test_a_session_that_is_done_early_is_not_waited_for(served, channel):
    call = ExecutorServiceStub(channel).Connect()
    await call.write(HELLO)
    await call.done_writing()
    await call.read()
    [seat] = served.sessions.connected
    asyncio.get_running_loop().call_later(0.05, seat.outlet.closed.set)
    started = time.monotonic()

    await served.server.stop()

    assert time.monotonic() - started < 20
    assert seat.outlet.said == ["drain"]


async def test_who_comes_while_the_server_stops_is_sent_away_and_probes_are_answered(
    served, channel
):
    call = ExecutorServiceStub(channel).Connect()
    await call.write(HELLO)
    await call.read()
    health = HealthStub(channel)

    async with asyncio.TaskGroup() as group:
        group.create_task(served.server.stop())
        await asyncio.sleep(0.05)
        failure = await failure_of(
            RunServiceStub(channel).GetRun(run_service_pb2.GetRunRequest(run_id="r1"))
        )
        ready = await health.Check(health_pb2.HealthCheckRequest(service="readiness"))
        alive = await health.Check(health_pb2.HealthCheckRequest(service="liveness"))

    assert failure.reason == "SHUTTING_DOWN"
    assert ready.status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert alive.status == health_pb2.HealthCheckResponse.SERVING
    call.cancel()


async def test_stopping_takes_bounded_time_whatever_streams_do(served, channel):
    await served.engine.create(RUN)
    await served.engine.go_on(RUN, 20, payload="x" * 200_000)
    # A watcher that never reads, a session that never ends, a probe that watches.
    watch = RunServiceStub(channel).WatchRun(run_service_pb2.WatchRunRequest(run_id="r1"))
    session = ExecutorServiceStub(channel).Connect()
    await session.write(HELLO)
    probe = HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="liveness"))
    await asyncio.sleep(0.2)
    started = time.monotonic()

    await served.server.stop()

    assert time.monotonic() - started < 5
    for call in (watch, session, probe):
        call.cancel()


async def test_stopping_twice_is_harmless(served):
    await served.server.stop()
    await served.server.stop()


@pytest.mark.parametrize("service", ["readiness", ""])
async def test_whoever_watches_readiness_sees_it_go(served, channel, service):
    call = HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=service))
    first = await call.read()

    async with asyncio.TaskGroup() as group:
        group.create_task(served.server.stop())
        second = await call.read()

    assert first.status == health_pb2.HealthCheckResponse.SERVING
    assert second.status == health_pb2.HealthCheckResponse.NOT_SERVING
