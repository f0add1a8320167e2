"""A caller that goes away never stops what it asked for."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from stepgraph.v1 import run_service_pb2
from stepgraph.v1.run_service_pb2_grpc import RunServiceStub
from stepgraph_server.storage.records import RunKey
from tests.support.standins import serving

START = run_service_pb2.StartRunRequest(run_id="r1", graph={"reference": "g"})


async def until_there(served, key):
    async with asyncio.timeout(5), served.engine.changed:
        while await served.store.runs.get(key) is None:
            await served.engine.changed.wait()


async def test_a_start_is_carried_out_although_its_deadline_has_passed(served, channel):
    served.engine.gate.clear()
    with pytest.raises(grpc.RpcError) as caught:
        await RunServiceStub(channel).StartRun(START, timeout=0.1)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    served.engine.gate.set()

    await until_there(served, RunKey("default", "r1"))


async def test_a_start_is_carried_out_although_its_caller_has_gone(served, channel):
    served.engine.gate.clear()
    call = RunServiceStub(channel).StartRun(START)
    await asyncio.sleep(0.1)
    call.cancel()
    await asyncio.sleep(0.1)

    served.engine.gate.set()

    await until_there(served, RunKey("default", "r1"))


async def test_a_start_is_carried_out_although_whoever_wants_to_watch_has_gone(served, channel):
    served.engine.gate.clear()
    call = RunServiceStub(channel).StartAndWatchRun(
        run_service_pb2.StartAndWatchRunRequest(start=START)
    )
    await asyncio.sleep(0.1)
    call.cancel()
    async with asyncio.timeout(5):
        await served.server.gate.until_empty("watch")

    served.engine.gate.set()

    await until_there(served, RunKey("default", "r1"))


async def test_the_trace_of_the_caller_is_handed_on(served, channel):
    traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    await RunServiceStub(channel).StartRun(START, metadata=(("traceparent", traceparent),))

    [caller] = served.engine.callers
    assert caller.traceparent == traceparent
    assert caller.peer.startswith("ipv4:127.0.0.1:")


async def test_a_start_that_is_under_way_when_the_server_stops_is_finished(settings):
    async with (
        serving(settings) as served,
        grpc.aio.insecure_channel(served.server.address) as channel,
    ):
        served.engine.gate.clear()
        call = RunServiceStub(channel).StartRun(START)
        await asyncio.sleep(0.1)
        asyncio.get_running_loop().call_later(0.1, served.engine.gate.set)
        await served.server.stop()
        assert (await call).run.run_id == "r1"
