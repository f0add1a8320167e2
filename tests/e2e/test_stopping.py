"""SIGTERM: whoever asks hears that the server is not ready, streams end with a reason, and nothing is lost.

Probes of a container and of a server with TLS are left out.
"""

from __future__ import annotations

import asyncio
import signal
import time

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from stepgraph.v1.executor_service_pb2 import ConnectRequest
from stepgraph.v1.run_pb2 import RunStatus
from stepgraph.v1.run_service_pb2 import WatchRunRequest, WatchRunsRequest
from stepgraph_client import Graph
from stepgraph_client.errors import read_status
from tests.support.e2e_house import happened, history, kinds

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SHORT = ("shutdown.drain_grace=500ms", "shutdown.stop_grace=500ms")
#: Both graces, and a moment for a busy machine.
LONGEST_STOP_S = 5.0


@pytest.fixture
async def channel(server):
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield channel


async def check(channel, service):
    return (await HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service))).status


def hold():
    graph = Graph("hold")
    graph.tool("work", "work", {}, output="did")
    graph.end("work")
    return graph


class Holder:
    """An executor that works until it is let go."""

    def __init__(self, house):
        self.gate = asyncio.Event()
        self.executor = house.executor("e1")

        @self.executor.tool()
        async def work() -> str:
            await house.ledger.note("work")
            await self.gate.wait()
            return "done"


async def test_probes_by_name_say_what_they_mean(channel):
    for service in ("liveness", "readiness", ""):
        assert await check(channel, service) == SERVING
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check(channel, "stepgraph.v1.Secrets")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("settings", [SHORT])
async def test_streams_end_with_a_reason_and_the_process_well_and_in_bounded_time(
    server, house, client, channel
):
    holder = Holder(house)
    await house.work(holder.executor)
    run = await client.start_run(hold())
    await house.ledger.called("work")
    stubs = client._stubs
    probe = HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="readiness"))
    assert (await probe.read()).status == SERVING
    one = stubs.runs.WatchRun(WatchRunRequest(run_id=run.run_id))
    many = stubs.runs.WatchRuns(WatchRunsRequest())
    idle = stubs.executors.Connect()
    await idle.write(
        ConnectRequest(
            hello={"protocol_version": 1, "executor_id": "idle", "instance_token": b"i" * 16}
        )
    )
    assert (await idle.read()).HasField("welcome")
    await one.read()

    started = time.monotonic()
    server.signal(signal.SIGTERM)
    assert (await probe.read()).status == NOT_SERVING
    reasons = await asyncio.gather(*(end_of(call) for call in (one, many, idle)))
    code = await server.ended()

    assert code == 0
    assert time.monotonic() - started < LONGEST_STOP_S
    assert {(status.code, status.reason) for status in reasons} == {
        (grpc.StatusCode.UNAVAILABLE, "SHUTTING_DOWN")
    }
    probe.cancel()

    await server.start()
    holder.gate.set()
    assert (await run.wait()).status == RunStatus.RUN_STATUS_COMPLETED
    assert house.ledger.calls["work"] == 1
    assert "task_lost" not in kinds(await history(client, run.run_id))


async def end_of(call):
    async def read_on():
        while await call.read() is not grpc.aio.EOF:
            pass

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(read_on(), 20)
    return read_status(caught.value)


async def test_results_that_come_while_it_drains_are_kept(server, house, client):
    holder = Holder(house)
    await house.work(holder.executor)
    run = await client.start_run(hold())
    await house.ledger.called("work")

    server.signal(signal.SIGTERM)
    await server.line('"server.stopping"')
    holder.gate.set()
    assert await server.ended() == 0
    await server.start()

    events = await history(client, run.run_id)
    assert (await run.wait()).status == RunStatus.RUN_STATUS_COMPLETED
    assert kinds(events).count("task_completed") == 1
    assert house.ledger.calls["work"] == 1


async def test_what_waits_for_people_and_what_is_idle_stop_at_once(server, client):
    graph = Graph("ask")
    graph.approval("ask", "Go on?")
    graph.end("ask")
    run = await client.start_run(graph)
    await happened(client, run.run_id, "interrupt_opened")
    started = time.monotonic()

    server.signal(signal.SIGINT)

    assert await server.ended() == 0
    assert time.monotonic() - started < 4
    await server.start()
    assert (await client.get_run(run.run_id)).status == RunStatus.RUN_STATUS_SUSPENDED


async def test_a_second_signal_stops_it_at_once(server, house, client):
    holder = Holder(house)
    await house.work(holder.executor)
    await client.start_run(hold())
    await house.ledger.called("work")

    server.signal(signal.SIGTERM)
    await server.line('"server.stopping"')
    server.signal(signal.SIGTERM)

    assert await server.ended() == 128 + signal.SIGTERM
