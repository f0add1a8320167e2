"""One stream: frames go both ways, and every end is told from every other."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph_client._channel import ExecutorChannel
from stepgraph_client._session import ExecutorSession, State
from stepgraph_client._session_events import Identity, ServerSilent, Welcomed
from stepgraph_client._stream import Stream


class Line:
    """One stream to a server whose side a test writes."""

    def __init__(self, serve):
        self.serve = serve
        self.events = []
        self.welcomed = asyncio.Event()
        self.wake = asyncio.Event()
        identity = Identity(executor_id="w", instance_token=b"x" * 16, labels={})
        self.session = ExecutorSession(identity, [], 4)
        self.stream = Stream(self.session, self.handle, self.wake)

    def handle(self, events):
        self.events.extend(events)
        self.welcomed.set()

    async def run(self):
        return await self.stream.run(self.channel.connect())


@asynccontextmanager
async def serving(serve):
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    handler = grpc.method_handlers_generic_handler(
        "stepgraph.v1.ExecutorService", {"Connect": grpc.stream_stream_rpc_method_handler(serve)}
    )
    server.add_generic_rpc_handlers([handler])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    line = Line(serve)
    line.channel = ExecutorChannel(f"127.0.0.1:{port}")
    yield line
    await line.channel.close()
    await server.stop(0)


def down(**frame):
    return pb.ConnectResponse(**frame).SerializeToString()


async def test_frames_go_both_ways_and_a_good_end_is_none():
    heard = []

    async def serve(requests, context):
        heard.append(pb.ConnectRequest.FromString(await anext(requests)))
        yield down(welcome={"session_id": "s"})
        yield down(ping={"nonce": 7})
        heard.append(pb.ConnectRequest.FromString(await anext(requests)))

    async with serving(serve) as line:
        end = await line.run()
    assert heard[0].hello.executor_id == "w"
    assert heard[1].pong.nonce == 7
    assert isinstance(line.events[0], Welcomed)
    assert end.status is None
    assert not end.was_silent
    assert line.session.state is State.APART


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.ABORTED,
    ],
)
async def test_whatever_the_peer_ends_it_with_is_its_status(code):
    async def serve(requests, context):
        yield down(welcome={})
        await context.abort(code, "because")

    async with serving(serve) as line:
        end = await line.run()
    assert end.status.code is code
    assert end.status.message == "because"


async def test_a_server_that_is_not_there_is_unavailable():
    async def serve(requests, context):
        yield b""

    async with serving(serve) as line:
        channel = ExecutorChannel("127.0.0.1:1")
        end = await line.stream.run(channel.connect())
        await channel.close()
    assert end.status.code is grpc.StatusCode.UNAVAILABLE


async def test_what_is_ready_later_goes_out_when_the_writer_is_woken():
    heard = asyncio.Queue()

    async def serve(requests, context):
        yield down(welcome={})
        async for data in requests:
            heard.put_nowait(pb.ConnectRequest.FromString(data).WhichOneof("frame"))

    async with serving(serve) as line:
        running = asyncio.ensure_future(line.run())
        assert await heard.get() == "hello"
        await line.welcomed.wait()
        line.session.resize(3)
        line.wake.set()
        assert await asyncio.wait_for(heard.get(), 5) == "update"
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert line.session.state is State.APART


async def test_a_call_that_this_side_ends_has_no_status_of_the_servers():
    async def serve(requests, context):
        yield down(welcome={})
        await asyncio.Event().wait()

    async with serving(serve) as line:
        call = line.channel.connect()
        running = asyncio.ensure_future(line.stream.run(call))
        await line.welcomed.wait()
        call.cancel()
        end = await asyncio.wait_for(running, 5)
    assert end.status.code is grpc.StatusCode.CANCELLED


async def test_a_server_that_says_nothing_is_given_up():
    async def serve(requests, context):
        limit = {"nanos": 100_000_000}
        yield down(welcome={"silence_limit": limit, "ping_interval": {"nanos": 30_000_000}})
        await asyncio.Event().wait()

    async with serving(serve) as line:
        end = await asyncio.wait_for(line.run(), 5)
    assert end.was_silent
    assert end.status is None
    assert isinstance(line.events[-1], ServerSilent)


async def test_who_is_cancelled_just_as_the_stream_ends_is_cancelled():
    async def serve(requests, context):
        yield b""

    class EndsAsItIsCancelled:
        running = None

        async def read(self):
            await asyncio.sleep(0)
            self.running.cancel()
            return grpc.aio.EOF

        async def write(self, data):
            pass

        async def done_writing(self):
            pass

        def cancel(self):
            pass

        def done(self):
            return False

    async with serving(serve) as line:
        call = EndsAsItIsCancelled()
        call.running = asyncio.ensure_future(line.stream.run(call))
        with pytest.raises(asyncio.CancelledError):
            await call.running
