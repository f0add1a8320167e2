from __future__ import annotations

import grpc

from stepgraph.v1.run_service_pb2 import ListRunsRequest
from stepgraph_client.connection import Connection


async def test_a_connection_opens_when_it_is_used_and_again_after_it_was_closed(server) -> None:
    connection = Connection(server.address)
    first = connection.stubs
    assert connection.stubs is first
    await first.runs.ListRuns(ListRunsRequest())
    await connection.close()
    await connection.close()
    assert connection.stubs is not first
    await connection.stubs.runs.ListRuns(ListRunsRequest())
    await connection.close()


async def test_credentials_make_a_secure_channel(server) -> None:
    connection = Connection(server.address, grpc.ssl_channel_credentials())
    assert connection.stubs.runs is not None
    await connection.close()
