"""A watcher that comes back again and again sees everything once: over lost connections and a killed server.

Replicas, and events that retention has removed, are left out.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing

import grpc.aio
import pytest

from stepgraph.v1.run_pb2 import RunStatus
from stepgraph.v1.run_service_pb2 import WATCH_VIEW_FULL, WATCH_VIEW_SUMMARY, WatchRunRequest
from stepgraph_client import Graph, InvalidRequest, NotFound, expression, otherwise
from tests.support.e2e_house import history, is_durable
from tests.support.e2e_proxy import Network

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]

TICKS = 150


def ticking():
    graph = Graph("ticking", max_iterations=10 * TICKS)
    graph.tool("tick", "tick", {"payload": "x" * 50}, output="n")
    graph.reducer("n", "sum")
    graph.assign("end")
    graph.edge("tick", "tick", when=expression(f"vars.n < {TICKS}"))
    graph.edge("tick", "end", when=otherwise())
    graph.end("end")
    return graph


async def ticker(house):
    executor = house.executor("e1")

    @executor.tool()
    async def tick(payload: str) -> int:
        await house.ledger.note("tick")
        await asyncio.sleep(0.005)
        return 1

    await house.work(executor)


async def pieces(client, run_id, *, view, chance, at):
    """Yield what connections bring that are given up after a random number of responses, until the run is over."""
    last = connection = 0
    while True:
        connection += 1
        await at(connection)
        call = client._stubs.runs.WatchRun(
            WatchRunRequest(run_id=run_id, after_sequence=last, view=view)
        )
        patience = chance.randint(1, 8)
        try:
            async for response in call:
                for batch in response.batches:
                    for event in batch.events:
                        yield event
                        last = event.sequence
                patience -= 1
                if not patience:
                    break
            else:
                return  # the server ended it well, so the run is over
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        finally:
            call.cancel()


@pytest.mark.parametrize("view", [WATCH_VIEW_FULL, WATCH_VIEW_SUMMARY], ids=["full", "summary"])
async def test_what_many_connections_bring_is_the_whole_log_without_gap_or_repetition(
    server, house, client, view
):
    await ticker(house)
    run = await client.start_run(ticking())
    connections = 0

    async def at(connection):
        nonlocal connections
        connections = connection
        if connection == 12:
            await server.restart()

    seen = [
        event
        async for event in pieces(client, run.run_id, view=view, chance=random.Random(7), at=at)
    ]

    log = await history(client, run.run_id)
    assert connections > 30
    assert [event.sequence for event in seen] == [event.sequence for event in log]
    assert [event.sequence for event in seen] == list(range(1, len(log) + 1))
    assert [event.WhichOneof("kind") for event in seen] == [e.WhichOneof("kind") for e in log]
    if view == WATCH_VIEW_FULL:
        assert seen == log
    else:
        assert all("xxxx" not in str(event) for event in seen)
        assert not any(event.task_completed.result.HasField("tool") for event in seen)
    assert (await run.wait()).status == RunStatus.RUN_STATUS_COMPLETED
    assert house.ledger.calls["tick"] == TICKS


async def test_the_client_s_own_watch_goes_on_over_resets_and_a_kill(server, house, client):
    await ticker(house)
    run = await client.start_run(ticking())
    async with Network(server.address) as network, asyncio.timeout(40):
        watcher = await house.client(network.address)
        sequences = []
        async with aclosing(watcher.watch(run.run_id)) as events:
            async for event in events:
                if not is_durable(event):
                    continue
                sequences.append(event.sequence)
                if event.sequence % 40 == 0:
                    network.reset()
                if event.sequence == 200:
                    await server.restart()

        assert network.connections > 5
    assert sequences == list(range(1, len(await history(client, run.run_id)) + 1))


async def test_cursors_that_can_not_be_are_refused_by_name(house, client):
    await ticker(house)
    graph = ticking()
    graph._graph.max_iterations = 3
    run = await client.start_run(graph)
    row = await run.wait()
    last = row.last_sequence

    async def watched(run_id, after):
        async with asyncio.timeout(10), aclosing(client.watch(run_id, after)) as events:
            return [event.sequence async for event in events]

    with pytest.raises(InvalidRequest) as caught:
        await watched(run.run_id, last + 1)
    assert caught.value.reason == "SEQUENCE_OUT_OF_RANGE"
    assert caught.value.status.code is grpc.StatusCode.OUT_OF_RANGE
    with pytest.raises(NotFound):
        await watched("nobody", 0)
    assert await watched(run.run_id, last) == []
    assert await watched(run.run_id, 0) == list(range(1, last + 1))
