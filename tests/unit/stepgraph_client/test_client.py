from __future__ import annotations

from stepgraph.v1.executor_service_pb2 import Executor
from stepgraph_client.client import Client


async def test_executors_are_listed_with_their_load(client, server) -> None:
    server.executors = [Executor(executor_id=f"e{n}", in_flight=n) for n in range(3)]
    assert [(each.executor_id, each.in_flight) async for each in client.executors()] == [
        ("e0", 0),
        ("e1", 1),
        ("e2", 2),
    ]


async def test_a_namespace_is_sent_with_every_request(server) -> None:
    async with Client(server.address, namespace="team") as client:
        assert (client.server, client.namespace) == (server.address, "team")
        assert [each async for each in client.executors()] == []
        assert [each async for each in client.list_runs()] == []
    assert server.requests["ListExecutors"][0].namespace == "team"
    assert server.requests["ListRuns"][0].namespace == "team"


async def test_a_client_that_was_closed_opens_again_when_it_is_used(server) -> None:
    client = Client(server.address)
    await client.close()
    assert [each async for each in client.list_graphs()] == []
    await client.close()
