"""Sessions over real connections: an executor that does not read costs bounded memory, and never keeps its place."""

from __future__ import annotations

import asyncio

import pytest

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import task_pb2
from stepgraph_client._channel import ExecutorChannel
from stepgraph_server.api import executor_stream
from tests.support.executor_server import ExecutorServer
from tests.support.hellos import hello
from tests.support.proxy import Proxy

TASK = task_pb2.Task(task_id="r/t", attempt=1, idempotency_key="x" * 900_000).SerializeToString()


@pytest.fixture
async def server():
    async with ExecutorServer() as server:
        yield server


@pytest.fixture
async def proxy(server):
    async with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
async def channel(proxy):
    channel = ExecutorChannel(proxy.address)
    yield channel
    await channel.close()


async def greet(channel, **options):
    call = channel.connect()
    await call.write(pb.ConnectRequest(hello=hello(**options)).SerializeToString())
    assert pb.ConnectResponse.FromString(await call.read()).HasField("welcome")
    return call


async def clog(server):
    """Send tasks that nobody reads, until no more are placed there."""
    seat = await server.seat()
    sent = 0
    while not seat.paused:
        seat.outlet.send_tasks([TASK])
        sent += len(TASK)
        assert sent < 100_000_000, "it takes everything"
        await asyncio.sleep(0.002)
    assert server.registry.reserve("default", ("llm", "gpt-1"), ()) is None
    return seat


async def gone(server, seat, readers):
    await server.until(lambda: seat not in server.registry.seats())
    await server.until(lambda: len(server.streams._reading) == readers)


async def test_an_executor_that_reads_again_gets_work_again(server, channel):
    call = await greet(channel)
    seat = await clog(server)
    while seat.paused:
        await call.read()
    assert server.registry.reserve("default", ("llm", "gpt-1"), ()) is seat
    call.cancel()


async def test_a_clogged_stream_that_is_cancelled_is_gone(server, channel):
    call = await greet(channel)
    seat = await clog(server)
    call.cancel()
    await gone(server, seat, readers=0)


async def test_a_clogged_connection_that_breaks_is_gone(server, channel, proxy):
    call = await greet(channel)
    seat = await clog(server)
    proxy.reset()
    await gone(server, seat, readers=0)
    call.cancel()


async def test_a_clogged_stream_is_superseded_at_once_and_cut_off(
    server, channel, proxy, monkeypatch
):
    monkeypatch.setattr(executor_stream, "LAST_WORDS_S", 0.1)
    old = await greet(channel)
    seat = await clog(server)
    other = ExecutorChannel(server.address)
    new = await greet(other)
    (current,) = server.registry.seats()
    assert current is not seat
    await gone(server, seat, readers=1)
    for call in (old, new):
        call.cancel()
    await other.close()
