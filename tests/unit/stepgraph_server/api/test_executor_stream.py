"""The loops of a session: what is read reaches the engine, what is said is written, and each end is the whole end."""

from __future__ import annotations

import asyncio
import itertools
import logging
from contextlib import asynccontextmanager

import pytest

from stepgraph.v1 import event_pb2, task_pb2
from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph_server.api import executor_stream
from stepgraph_server.api.executor_stream import ExecutorStreams
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.instants import MILLISECOND, SECOND, Instant, Span
from stepgraph_server.executors.registry import Registry
from stepgraph_server.executors.seats import Wanted
from stepgraph_server.executors.session_events import Terms
from tests.support.hellos import agent, hello, ref, tool
from tests.support.work import RecordingWork

MODEL = ("llm", "gpt-4")


class Requests:
    """The requests of one stream, as gRPC hands them over."""

    def __init__(self):
        self.queue = asyncio.Queue()

    def send(self, **frame):
        self.queue.put_nowait(pb.ConnectRequest(**frame).SerializeToString())

    def send_bytes(self, data):
        self.queue.put_nowait(data)

    def end(self, error=None):
        self.queue.put_nowait(error)

    async def __aiter__(self):
        while isinstance(data := await self.queue.get(), bytes):
            yield data
        if data is not None:
            raise data


class Line:
    """One stream, from the executor's side."""

    def __init__(self, house):
        self.requests = Requests()
        self.responses = house.streams.connect(self.requests.__aiter__())

    async def next(self):
        data = await asyncio.wait_for(anext(self.responses), 5)
        return pb.ConnectResponse.FromString(data)

    async def greet(self, *args, **options):
        self.requests.send(hello=hello(*args, **options))
        frame = await self.next()
        assert frame.HasField("welcome")
        return frame.welcome

    async def end_of(self):
        """Return the exception that the stream ends with; None if it just ends."""
        try:
            while True:
                await self.next()
        except StopAsyncIteration:
            return None
        except Refused as refused:
            return refused


class House:
    def __init__(self, terms, work):
        self.work = work
        self.registry = Registry(Span(30 * SECOND), self.work.room)
        self.time = Instant(1_000 * SECOND)
        ids = itertools.count(1)
        self.streams = ExecutorStreams(
            registry=self.registry,
            work=self.work,
            terms=terms,
            now=lambda: self.time,
            new_session_id=lambda: f"s{next(ids)}",
        )

    def place(self):
        return self.registry.reserve("default", MODEL, ())


@asynccontextmanager
async def opened(terms=None, work=None):
    house = House(terms or Terms(), work or RecordingWork())
    async with house.streams:
        yield house


@pytest.fixture
async def house():
    async with opened() as house:
        yield house


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


def task(task_id="r/t", size=0):
    return task_pb2.Task(task_id=task_id, attempt=1, idempotency_key="x" * size).SerializeToString()


async def test_a_hello_is_welcomed_and_makes_room(house):
    line = Line(house)
    welcome = await line.greet()
    assert welcome.session_id == "s1"
    seat = house.place()
    assert seat.executor_id == "worker-1"
    assert house.work.room_at == [seat]


async def test_what_is_said_in_one_turn_goes_out_in_one_frame(house):
    line = Line(house)
    await line.greet()
    seat = house.place()
    seat.outlet.send_tasks([task("r/a")])
    seat.outlet.send_tasks([task("r/b")])
    seat.outlet.send_acks([("r/x", 1, pb.ACK_VERDICT_ACCEPTED)])
    both = (await line.next()).tasks
    assert len(both.acks) == 1
    assert [item.task_id for item in both.tasks] == ["r/a", "r/b"]


async def test_every_frame_reaches_the_engine_as_one_call(house):
    line = Line(house)
    await line.greet()
    outcome = pb.AttemptOutcome(task_id="r/a", attempt=1, cancelled={})
    line.requests.send(accepted={"attempts": [ref("r/a"), ref("r/b")]})
    line.requests.send(progress={"items": [pb.AttemptProgress(task_id="r/a", attempt=1)]})
    line.requests.send(results={"outcomes": [outcome]})
    line.requests.send(reject={"attempt": ref("r/b"), "reason": "UNKNOWN_VARIANT", "message": "?"})
    await settle()
    assert house.work.accepts == [ref("r/a"), ref("r/b")]
    assert len(house.work.shown) == 1
    assert house.work.results == [outcome]
    assert house.work.rejects == [(ref("r/b"), "UNKNOWN_VARIANT", "?")]


async def test_updates_reach_the_registry(house):
    line = Line(house)
    await line.greet(max_in_flight=0)
    assert house.place() is None
    line.requests.send(update={"max_in_flight": 1, "added_capabilities": [agent("k")]})
    await settle()
    assert house.registry.reserve("default", ("agent", "k"), ()) is not None
    assert house.place() is None


async def test_cancels_rejects_and_a_drain_go_out(house):
    line = Line(house)
    await line.greet()
    (seat,) = house.registry.seats()
    seat.outlet.send_cancels([ref("r/a")], "enough", SECOND)
    seat.outlet.reject(ref("r/b"), "RESULT_INVALID", "no")
    seat.outlet.drain("stopping", SECOND)
    assert (await line.next()).cancel.reason == "enough"
    assert (await line.next()).reject.reason == "RESULT_INVALID"
    assert (await line.next()).drain.reason == "stopping"
    assert house.place() is None


async def test_a_bad_frame_is_answered_and_the_stream_lives(house):
    line = Line(house)
    await line.greet()
    line.requests.send_bytes(b"\xff")
    assert (await line.next()).reject.frame_ordinal == 2
    house.place().outlet.send_tasks([task()])
    assert (await line.next()).HasField("tasks")


async def test_a_wrong_hello_ends_the_stream_with_its_field(house):
    line = Line(house)
    line.requests.send(hello=hello("?"))
    refused = await line.end_of()
    assert refused.reason == "HELLO_INVALID"
    assert refused.metadata == {"field": "hello.executor_id"}
    assert refused.violations[0].path == "hello.executor_id"
    assert house.registry.seats() == []


async def test_a_broken_first_frame_ends_the_stream(house):
    line = Line(house)
    line.requests.send_bytes(b"\xff")
    assert (await line.end_of()).reason == "HELLO_INVALID"


async def test_tools_of_a_hello_are_checked(house):
    line = Line(house)
    line.requests.send(hello=hello(capabilities=[tool("a"), tool("b", schema="{")]))
    refused = await line.end_of()
    assert refused.metadata == {"field": "hello.capabilities[1].tool.definition.input_schema"}


async def test_what_is_held_and_wanted_takes_room_and_the_rest_is_told(house):
    house.work.wanted = Wanted(attempts=[ref("r/a")], results=[ref("r/c")])
    line = Line(house)
    message = hello(max_in_flight=2)
    message.held_attempts.extend([ref("r/a"), ref("r/b")])
    message.unacknowledged_results.extend([ref("r/c"), ref("r/d")])
    line.requests.send(hello=message)
    welcome = (await line.next()).welcome
    assert house.work.held == [ref("r/a"), ref("r/b")]
    assert house.work.unacknowledged == [ref("r/c"), ref("r/d")]
    assert list(welcome.wanted_attempts) == [ref("r/a")]
    assert list(welcome.wanted_results) == [ref("r/c")]
    assert house.place() is not None
    assert house.place() is None


class TestEnds:
    async def test_bye_ends_it_well_and_loses_what_was_not_reported(self, house):
        line = Line(house)
        await line.greet()
        line.requests.send(bye={"reason": "done"})
        assert await line.end_of() is None
        (lost,) = house.work.lost_instances
        assert lost.reason == event_pb2.TASK_LOSS_REASON_FORGOTTEN
        assert house.registry.next_expiry() is None
        assert house.place() is None

    async def test_a_stream_that_just_ends_starts_the_grace(self, house):
        line = Line(house)
        await line.greet()
        line.requests.end()
        assert await line.end_of() is None
        assert house.work.lost_instances == []
        assert house.registry.next_expiry() == house.time + 30 * SECOND
        assert house.place() is None

    async def test_a_reader_that_fails_ends_the_stream_with_its_error(self, house):
        line = Line(house)
        await line.greet()
        line.requests.end(RuntimeError("broken"))
        with pytest.raises(RuntimeError, match="broken"):
            await line.next()
        assert house.registry.next_expiry() is not None

    async def test_a_writer_that_is_closed_ends_the_reader_and_starts_the_grace(self, house):
        line = Line(house)
        await line.greet()
        await line.responses.aclose()
        assert house.registry.next_expiry() is not None
        await settle()
        assert not house.streams._reading

    async def test_a_call_that_is_cancelled_ends_both(self, house):
        line = Line(house)
        await line.greet()
        waiting = asyncio.ensure_future(line.next())
        await settle()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await settle()
        assert not house.streams._reading
        assert house.registry.next_expiry() is not None

    async def test_a_generator_that_is_never_closed_is_noticed_by_the_reader(self, house):
        line = Line(house)
        await line.greet()
        line.requests.end()
        await settle()
        assert house.registry.next_expiry() is not None
        assert house.registry.seats() == []

    async def test_a_newer_stream_of_the_same_instance_takes_over(self, house):
        old = Line(house)
        await old.greet()
        before = house.place()
        new = Line(house)
        await new.greet()
        refused = await old.end_of()
        assert refused.reason == "SESSION_SUPERSEDED"
        assert refused.metadata == {"executor_id": "worker-1"}
        assert house.work.lost_instances == []
        assert house.registry.next_expiry() is None
        seat = house.place()
        assert seat is not before
        before.outlet.send_tasks([task("r/old")])
        seat.outlet.send_tasks([task("r/new")])
        assert [item.task_id for item in (await new.next()).tasks.tasks] == ["r/new"]

    async def test_another_instance_loses_what_the_old_one_had(self, house):
        old = Line(house)
        await old.greet()
        new = Line(house)
        await new.greet(token=b"another-token-of-16")
        assert (await old.end_of()).reason == "SESSION_SUPERSEDED"
        (lost,) = house.work.lost_instances
        assert lost.reason == event_pb2.TASK_LOSS_REASON_FORGOTTEN

    async def test_a_stream_that_is_superseded_before_its_welcome_gets_none(self):
        go_on = asyncio.Event()

        class SlowWork(RecordingWork):
            async def joined(self, seat, held, unacknowledged):
                self.seats.append(seat)
                if len(self.seats) == 1:
                    await go_on.wait()
                return Wanted()

        async with opened(work=SlowWork()) as house:
            old, new = Line(house), Line(house)
            old.requests.send(hello=hello())
            ended = asyncio.ensure_future(old.end_of())
            await settle()
            await new.greet()
            go_on.set()
            assert (await ended).reason == "SESSION_SUPERSEDED"
            await settle()
            assert house.registry.seats() == [house.work.seats[1]]
            assert house.place() is house.work.seats[1]

    async def test_leaving_the_context_ends_every_reader(self):
        async with opened() as house:
            line = Line(house)
            await line.greet()
        assert not house.streams._reading
        assert await line.end_of() is None

    async def test_a_status_of_the_servers_own_ends_it(self, house):
        line = Line(house)
        await line.greet()
        (seat,) = house.registry.seats()
        seat.outlet.send_acks([("r/x", 1, pb.ACK_VERDICT_ACCEPTED)])
        seat.outlet.close("SHUTTING_DOWN", "bye", {})
        assert (await line.next()).HasField("acks"), "what was said before is still written"
        assert (await line.end_of()).reason == "SHUTTING_DOWN"

    async def test_begin_and_end_are_logged_without_secrets(self, house, caplog):
        caplog.set_level(logging.INFO, "stepgraph_server")
        line = Line(house)
        await line.greet()
        line.requests.send(bye={})
        await line.end_of()
        assert [record.action for record in caplog.records] == ["session.opened", "session.ended"]
        assert caplog.records[1].reason == "bye"


class TestTime:
    async def test_silence_is_pinged_and_then_ends_it(self):
        terms = Terms(ping_interval=Span(20 * MILLISECOND), silence_limit=Span(60 * MILLISECOND))
        async with opened(terms) as house:
            loop = asyncio.get_running_loop()
            start = loop.time()
            house.streams.now = lambda: Instant(round((loop.time() - start) * SECOND))
            line = Line(house)
            await line.greet()
            assert (await line.next()).HasField("ping")
            assert (await line.end_of()).reason == "SESSION_SILENT"
            assert house.registry.next_expiry() is not None


class TestSlowExecutors:
    async def test_no_more_tasks_are_placed_while_too_much_waits(self, house, monkeypatch):
        monkeypatch.setattr(executor_stream, "MAX_WAITING_BYTES", 1_000)
        line = Line(house)
        await line.greet()
        seat = house.place()
        seat.outlet.send_tasks([task(size=900)])
        assert not seat.paused
        seat.outlet.send_tasks([task(size=900)])
        assert house.place() is None
        assert len((await line.next()).tasks.tasks) == 2
        reading = asyncio.ensure_future(line.next())
        await settle()
        assert house.place() is seat, "everything has been written"
        reading.cancel()

    async def test_a_stream_that_nobody_reads_is_cut_off_after_its_end(self, house, monkeypatch):
        monkeypatch.setattr(executor_stream, "LAST_WORDS_S", 0.01)
        line = Line(house)

        async def call():
            line.requests.send(hello=hello())
            await anext(line.responses)
            await asyncio.Event().wait()  # gRPC writes, and the executor does not read

        calling = asyncio.ensure_future(call())
        await settle()
        (seat,) = house.registry.seats()
        seat.outlet.close("SESSION_SUPERSEDED", "", {})
        with pytest.raises(asyncio.CancelledError):
            await calling
