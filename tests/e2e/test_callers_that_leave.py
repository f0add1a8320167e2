"""A caller that goes away, in whatever way, leaves its run alone."""

from __future__ import annotations

import asyncio
import signal
from contextlib import aclosing

import grpc.aio
import pytest

from stepgraph.v1.run_pb2 import RunStatus
from stepgraph.v1.run_service_pb2 import StartAndWatchRunRequest, StartRunRequest
from stepgraph_client import Graph, TaskContext, limits
from tests.support.e2e_house import happened, history, kinds
from tests.support.e2e_processes import cli
from tests.support.e2e_proxy import Network

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]

LEAVING = ["a deadline", "a cancel", "a client that is killed", "no deadline", "a cut connection"]


def slow():
    graph = Graph("slow")
    graph.tool("work", "work", {}, limits=limits(run="123s"))
    graph.end("work")
    return graph


async def leave(way, server, client, started):
    """Start the run r1 and watch it; go away in some way once it works."""
    request = StartAndWatchRunRequest(
        start=StartRunRequest(graph={"reference": "slow"}, run_id="r1", request_id="once")
    )
    watch = client._stubs.runs.StartAndWatchRun
    match way:
        case "a deadline":
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in watch(request, timeout=0.5):
                    pass
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        case "a cancel" | "no deadline":
            call = watch(request)
            await call.read()
            await started()
            call.cancel()
        case "a client that is killed":
            async with cli(server.address, "run", "slow", "--run-id", "r1") as process:
                await started()
                process.signal(signal.SIGKILL)
                await process.ended()
        case _:
            async with (
                Network(server.address) as network,
                grpc.aio.insecure_channel(network.address) as channel,
            ):
                call = type(client._stubs.runs)(channel).StartAndWatchRun(request)
                await call.read()
                await started()
                network.reset()


@pytest.mark.parametrize("way", LEAVING)
async def test_a_run_goes_on_whichever_way_its_caller_leaves(server, house, client, way):
    gate = asyncio.Event()
    left = []
    executor = house.executor("e1")

    @executor.tool()
    async def work(ctx: TaskContext) -> str:
        left.append(ctx.time_left())
        await house.ledger.note("work")
        await gate.wait()
        return "done"

    await house.work(executor)
    await client.register_graph(slow())

    await leave(way, server, client, lambda: house.ledger.called("work"))
    await house.ledger.called("work")
    run = await client.run("r1")
    assert run.run.status == RunStatus.RUN_STATUS_RUNNING
    gate.set()

    assert (await run.wait()).status == RunStatus.RUN_STATUS_COMPLETED
    assert house.ledger.calls["work"] == 1
    assert 120 < left[0] <= 123, "its time comes from the graph, and from no deadline of a caller"
    assert not {"task_cancelled", "run_stopping"} & set(kinds(await history(client, "r1")))
    assert server.is_running


async def test_a_watch_that_is_left_and_taken_up_again_shows_the_rest(house, client):
    graph = Graph("ask")
    graph.approval("ask", "Go on?")
    graph.end("ask")
    run = await client.start_run(graph)
    await happened(client, run.run_id, "interrupt_opened")
    async with asyncio.timeout(10), aclosing(run.events()) as events:
        first = await anext(events)

    await client.cancel(run.run_id)

    async with asyncio.timeout(10), aclosing(run.events(first.sequence)) as events:
        rest = [event.sequence async for event in events]
    assert [first.sequence, *rest] == list(range(1, len(rest) + 2))
