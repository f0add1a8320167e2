"""More calls at once than gRPC lets wait by itself: each is carried out, or hears from us why not, and when to come back."""

from __future__ import annotations

import asyncio
from collections import Counter

import grpc.aio
import pytest

from stepgraph.v1 import run_service_pb2
from stepgraph.v1.run_service_pb2_grpc import RunServiceStub
from stepgraph_server.app import running_server
from stepgraph_server.config import LimitSettings, Settings
from tests.support.failures import Failure
from tests.support.graphs import graph

WORK = graph({"call": {"action": {"tool_call": {"tool_name": "echo", "args_template": "{}"}}}})
CALLS = 5_000


async def starts(settings: Settings) -> Counter[str]:
    """Start many runs at once; return how often each thing came of it."""
    request = run_service_pb2.StartRunRequest(graph={"definition": WORK})

    async def start(stub: RunServiceStub) -> str:
        try:
            await stub.StartRun(request)
        except grpc.aio.AioRpcError as error:
            failure = Failure(error)
            assert "RetryInfo" in failure.details
            return failure.reason
        return "started"

    async with (
        running_server(settings) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        stub = RunServiceStub(channel)
        return Counter(await asyncio.gather(*(start(stub) for _ in range(CALLS))))


@pytest.mark.parametrize("most", [100, 10_000])
async def test_no_call_of_a_burst_is_cancelled_by_the_transport(most: int) -> None:
    """5,000 at once are started, or refused as OVERLOADED with RetryInfo."""
    settings = Settings(
        listen="127.0.0.1:0", memory=True, limits=LimitSettings(max_pending_changes=most)
    )
    async with asyncio.timeout(60):
        outcomes = await starts(settings)

    assert set(outcomes) <= {"started", "OVERLOADED"}
    assert outcomes["started"] >= min(most, CALLS)
