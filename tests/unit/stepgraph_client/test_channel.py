"""The channel that streams run over."""

from __future__ import annotations

import grpc
import pytest

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph_client._channel import ExecutorChannel
from tests.support.executor_server import ExecutorServer
from tests.support.hellos import hello


@pytest.fixture
async def server():
    async with ExecutorServer() as server:
        yield server


async def greet(channel):
    call = channel.connect()
    await call.write(pb.ConnectRequest(hello=hello()).SerializeToString())
    frame = pb.ConnectResponse.FromString(await call.read())
    assert frame.HasField("welcome")
    return call


async def test_a_stream_carries_serialized_frames(server):
    channel = ExecutorChannel(server.address)
    await greet(channel)
    await channel.close()


async def test_frames_above_grpcs_own_limit_get_through(server):
    channel = ExecutorChannel(server.address)
    call = await greet(channel)
    await call.write(b"\xff" * 6_000_000)
    frame = pb.ConnectResponse.FromString(await call.read())
    assert frame.reject.reason == "PAYLOAD_TOO_LARGE"
    await channel.close()


async def test_it_opens_anew_after_it_was_closed(server):
    channel = ExecutorChannel(server.address)
    await greet(channel)
    await channel.close()
    await channel.close()
    await greet(channel)
    await channel.close()


async def test_it_speaks_tls_where_credentials_are_given(server):
    channel = ExecutorChannel(server.address, grpc.ssl_channel_credentials())
    call = channel.connect()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    await channel.close()
