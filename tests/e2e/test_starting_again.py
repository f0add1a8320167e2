"""A start whose answer is lost is sent again: one run, whatever happens in between. Replicas are left out."""

from __future__ import annotations

import asyncio

import grpc.aio
import pytest

from stepgraph.v1.run_pb2 import RunStatus
from stepgraph.v1.run_service_pb2 import StartRunRequest
from stepgraph_client import Client, Graph, Patience, Unreachable, WrongState
from tests.support.e2e_proxy import Network

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]


def quick():
    graph = Graph("quick")
    graph.assign("done", {"x": "has(vars.input)"})
    graph.end("done")
    return graph


async def runs_of(client):
    return [run.run_id async for run in client.list_runs()]


async def test_a_start_whose_answer_is_lost_and_is_sent_again_makes_one_run(server, house, client):
    await client.register_graph(quick())
    request = StartRunRequest(graph={"reference": "quick"}, request_id="once")
    async with Network(server.address) as network:
        impatient = Patience(max_tries=1, timeout_s=1)
        async with Client(network.address, patience=impatient) as caller:
            assert await runs_of(caller) == []  # connected
            network.swallows_answers = True
            with pytest.raises(Unreachable):
                await caller._caller.unary(caller._stubs.runs.StartRun, request)
            assert network.swallowed.is_set()

    again = await asyncio.gather(*(client._stubs.runs.StartRun(request) for _ in range(10)))

    [run_id] = {response.run.run_id for response in again}
    assert await runs_of(client) == [run_id]


async def test_the_client_does_so_by_itself_over_a_connection_that_is_cut(server, house, client):
    await client.register_graph(quick())
    async with Network(server.address) as network, asyncio.TaskGroup() as group:
        caller = await house.client(network.address)
        assert await runs_of(caller) == []
        network.swallows_answers = True
        starting = group.create_task(caller.start_run("quick", input=1))
        async with asyncio.timeout(10):
            await network.swallowed.wait()
        network.swallows_answers = False
        network.reset()
        run = await starting

    assert await runs_of(client) == [run.run_id]


async def test_the_same_start_is_found_after_the_end_and_after_a_restart_and_another_is_refused(
    server, house, client
):
    await client.register_graph(quick())
    first = await client.start_run("quick", input=1, request_id="once")
    assert (await first.wait()).status == RunStatus.RUN_STATUS_COMPLETED
    after_its_end = await client.start_run("quick", input=1, request_id="once")

    await server.restart()

    after_restart = await asyncio.gather(
        *(client.start_run("quick", input=1, request_id="once") for _ in range(10))
    )
    with pytest.raises(WrongState) as caught:
        await client.start_run("quick", input=2, request_id="once")
    assert caught.value.reason == "REQUEST_ID_REUSED"
    assert caught.value.status.code is grpc.StatusCode.FAILED_PRECONDITION
    found = {run.run_id for run in (first, after_its_end, *after_restart)}
    assert found == {first.run_id}
    assert await runs_of(client) == [first.run_id]


async def test_another_namespace_knows_nothing_of_it(house, client):
    other = await house.client(namespace="other")
    for each in (client, other):
        await each.register_graph(quick())

    one = await client.start_run("quick", input=1, request_id="once")
    two = await other.start_run("quick", input=2, request_id="once")

    assert one.run_id != two.run_id
    assert await runs_of(client) == [one.run_id]
    assert await runs_of(other) == [two.run_id]
