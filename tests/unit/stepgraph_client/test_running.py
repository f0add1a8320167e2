"""An executor while it runs: it comes back after every end that it did not wish for, and loses nothing on the way."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager

import grpc
import pytest

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import task_pb2
from stepgraph_client import _running
from stepgraph_client._stream import StreamEnd
from stepgraph_client.calls import Patience
from stepgraph_client.errors import InvalidRequest, Status, WrongState
from stepgraph_client.executor import Executor
from stepgraph_server.core.instants import MILLISECOND, SECOND, Span
from stepgraph_server.executors.session_events import Terms
from tests.support.executor_server import ExecutorServer
from tests.support.proxy import Proxy

Input = task_pb2.TaskInput
QUICK = Terms(
    ping_interval=Span(50 * MILLISECOND),
    silence_limit=Span(250 * MILLISECOND),
    lost_grace=Span(30 * SECOND),
)


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    patience = Patience(first_delay_s=0.01, factor=1.5, max_delay_s=0.1)
    monkeypatch.setattr(_running, "RECONNECT", patience)


@pytest.fixture
async def server():
    async with ExecutorServer(QUICK) as server:
        yield server


class Agent:
    """An agent that ends when a test lets it."""

    def __init__(self):
        self.calls = []
        self.go_on = asyncio.Event()
        self.cancelled = []

    async def __call__(self, task, ctx):
        self.calls.append((ctx.task_id, ctx.attempt))
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.append(ctx.task_id)
            raise
        return f"{task} is done"


def agent_task(task_id="r/t", task="it", kind="k"):
    task_input = Input(agent=Input.Agent(agent_kind=kind, task=task))
    return task_pb2.Task(task_id=task_id, input=task_input)


@asynccontextmanager
async def executing(address, agent=None, **options):
    executor = Executor(address, executor_id="w", **options)
    agent = agent or Agent()
    executor.agent("k")(agent)
    executor.test_agent = agent
    async with asyncio.TaskGroup() as group:
        running = group.create_task(executor.run())
        await asyncio.wait_for(executor.connected(), 10)
        yield executor
        agent.go_on.set()
        executor.stop()
        await asyncio.wait_for(running, 10)


async def test_it_connects_works_and_says_bye(server):
    agent = Agent()
    agent.go_on.set()
    async with executing(server.address, agent):
        await server.send(agent_task())
        outcome = await server.outcome("r/t")
        assert outcome.succeeded.agent.output.text == "it is done"
    assert len(server.lost_instances) == 1, "it said bye"
    assert server.registry.seats() == []


class TestBrokenStreams:
    async def broken(self, server, proxy, break_it):
        """Break the stream in the middle of a task; the task must not be done again."""
        async with executing(proxy.address) as executor:
            agent = executor.test_agent
            await server.send(agent_task())
            await server.until(lambda: agent.calls)
            before = server.registry.seats()
            await break_it()
            agent.go_on.set()
            outcome = await server.outcome("r/t")
            assert outcome.succeeded.agent.output.text == "it is done"
            assert outcome.attempt == 1
            assert agent.calls == [("r/t", 1)]
            assert server.lost_instances == []
            await server.until(lambda: server.registry.seats() != before)

    async def test_a_connection_that_is_closed(self, server):
        async with Proxy(server.port) as proxy:

            async def close():
                proxy.cut()

            await self.broken(server, proxy, close)

    async def test_a_connection_that_is_reset(self, server):
        async with Proxy(server.port) as proxy:

            async def reset():
                proxy.reset()

            await self.broken(server, proxy, reset)

    async def test_a_connection_that_is_swallowed_is_noticed_on_both_sides(self, server):
        async with Proxy(server.port) as proxy:

            async def swallow():
                proxy.is_black_hole = True
                await server.until(lambda: not server.registry.seats())
                await server.until(lambda: proxy.connections > 1)
                proxy.is_black_hole = False
                proxy.cut()

            await self.broken(server, proxy, swallow)

    async def test_a_call_that_the_server_cancels(self, server):
        async with Proxy(server.port) as proxy:

            async def cancel():
                for call in server.calls:
                    call.cancel()

            await self.broken(server, proxy, cancel)

    async def test_a_stream_that_ends_well_without_a_word(self, server):
        async with Proxy(server.port) as proxy:

            async def end():
                (seat,) = server.registry.seats()
                seat.outlet._cause = None
                seat.outlet.end()

            await self.broken(server, proxy, end)

    async def test_a_status_that_says_to_come_again(self, server):
        async with Proxy(server.port) as proxy:

            async def shut():
                (seat,) = server.registry.seats()
                seat.outlet.close("SHUTTING_DOWN", "later", {})

            await self.broken(server, proxy, shut)

    async def test_a_server_that_restarts(self, server):
        async with executing(server.address) as executor:
            await server.send(agent_task())
            await server.until(lambda: executor.test_agent.calls)
            await server.restart(pause_s=0.2)
            executor.test_agent.go_on.set()
            assert (await server.outcome("r/t")).attempt == 1
            assert executor.test_agent.calls == [("r/t", 1)]

    async def test_what_is_finished_in_between_is_handed_over_afterwards(self, server):
        async with executing(server.address) as executor:
            await server.send(agent_task())
            await server.until(lambda: executor.test_agent.calls)
            await server.grpc.stop(0)
            executor.test_agent.go_on.set()
            await asyncio.sleep(0.05)
            await server.restart()
            assert (await server.outcome("r/t")).attempt == 1

    async def test_what_another_executor_got_meanwhile_is_stopped(self, server):
        async with executing(server.address) as executor:
            agent = executor.test_agent
            await server.send(agent_task())
            await server.until(lambda: agent.calls)
            server.desk.tasks["r/t"].instance = "somebody else's"
            for seat in server.registry.seats():
                seat.outlet.close("SHUTTING_DOWN", "", {})
            await server.until(lambda: agent.cancelled)
            assert "r/t" not in server.recorded


class TestFatalEnds:
    async def run(self, server, **options):
        executor = Executor(server.address, executor_id="w", **options)
        executor.agent("k")(lambda task: "")
        return executor

    async def test_a_hello_that_is_refused(self, server):
        executor = Executor(server.address, executor_id="?")
        with pytest.raises(InvalidRequest) as caught:
            await asyncio.wait_for(executor.run(), 10)
        assert caught.value.reason == "HELLO_INVALID"
        assert caught.value.metadata == {"field": "hello.executor_id"}

    async def test_another_process_with_the_same_id(self, server):
        agent = Agent()
        first = Executor(server.address, executor_id="w")
        first.agent("k")(agent)
        running = asyncio.ensure_future(first.run())
        await first.connected()
        await server.send(agent_task())
        await server.until(lambda: agent.calls)
        async with executing(server.address):
            with pytest.raises(WrongState) as caught:
                await asyncio.wait_for(running, 10)
            assert caught.value.reason == "SESSION_SUPERSEDED"
            assert agent.cancelled == ["r/t"]
            assert len(server.lost_instances) == 1


class TestStopping:
    async def test_it_takes_nothing_more_and_finishes_what_runs(self, server):
        async with executing(server.address) as executor:
            await server.send(agent_task())
            await server.until(lambda: executor.test_agent.calls)
            executor.stop()
            executor.stop()
            (seat,) = server.registry.seats()
            await server.until(lambda: seat.max_in_flight == 0)
            assert "r/t" not in server.recorded
            executor.test_agent.go_on.set()
            await server.outcome("r/t")
        assert server.registry.seats() == []
        assert [lost.reason for lost in server.lost_instances] == [2]

    async def test_what_does_not_end_in_time_is_given_up(self, server):
        async with executing(server.address, drain_timeout_s=0.1) as executor:
            agent = executor.test_agent
            await server.send(agent_task())
            await server.until(lambda: agent.calls)
            executor.stop()
            await server.until(lambda: server.lost_instances)
            await server.until(lambda: agent.cancelled)
        assert "r/t" not in server.recorded
        assert server.desk.waiting == ["r/t"]

    async def test_a_result_that_can_not_be_handed_over_is_waited_for(self, server):
        async with executing(server.address) as executor:
            await server.send(agent_task())
            await server.until(lambda: executor.test_agent.calls)
            await server.grpc.stop(0)
            executor.stop()
            executor.test_agent.go_on.set()
            await asyncio.sleep(0.1)
            await server.restart()
            await server.outcome("r/t")

    async def test_without_a_server_it_stops_at_once(self):
        executor = Executor("127.0.0.1:1")
        running = asyncio.ensure_future(executor.run())
        await asyncio.sleep(0.05)
        executor.stop()
        await asyncio.wait_for(running, 2)

    async def test_a_run_that_is_cancelled_ends_at_once(self, server):
        executor = Executor(server.address)
        agent = Agent()
        executor.agent("k")(agent)
        running = asyncio.ensure_future(executor.run())
        await executor.connected()
        await server.send(agent_task())
        await server.until(lambda: agent.calls)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, 2)
        assert agent.cancelled


class TestServersThatStop:
    async def test_it_leaves_a_draining_server_when_it_has_nothing_to_tell(self, server):
        async with executing(server.address) as executor:
            await server.send(agent_task())
            await server.until(lambda: executor.test_agent.calls)
            (seat,) = server.registry.seats()
            seat.outlet.drain("stopping", Span(5 * SECOND))
            await asyncio.sleep(0.05)
            assert server.registry.seats() == [seat]
            executor.test_agent.go_on.set()
            await server.outcome("r/t")
            await server.until(lambda: server.registry.seats() not in ([], [seat]))
            assert server.lost_instances == [], "it came back as the same instance"


class TestTasks:
    async def test_a_cancel_reaches_the_function_and_its_end_is_acknowledged(self, server):
        async with executing(server.address) as executor:
            await server.send(agent_task())
            await server.until(lambda: executor.test_agent.calls)
            await server.cancel("r/t")
            assert (await server.outcome("r/t")).HasField("cancelled")

    async def test_progress_has_attempt_and_index(self, server):
        async def stream(task, ctx):
            for number in range(20):
                await ctx.progress_text(f"{number} ")
            return "done"

        async with executing(server.address) as executor:
            executor.agent("streamer")(stream)
            await server.until(
                lambda: server.registry.capable("default", ("agent", "streamer"), ())
            )
            await server.send(agent_task(kind="streamer"))
            await server.outcome("r/t")
            shown = server.progress_of["r/t", 1]
            assert [piece.index for piece in shown] == list(range(20))
            assert "".join(piece.text.text for piece in shown).split() == [
                str(number) for number in range(20)
            ]

    async def test_large_inputs_and_results_travel_apart_from_frames(self, server):
        async with executing(server.address) as executor:
            executor.test_agent.go_on.set()
            text = "x" * 3_000_000
            task = agent_task()
            server.inputs["r/t"] = Input(agent=Input.Agent(agent_kind="k", task=text))
            task.ClearField("input")
            await server.send(task)
            stored = (await server.outcome("r/t")).succeeded.agent.output.stored
            assert server.stored[stored.digest][1].decode() == f"{text} is done"

    async def test_many_tasks_at_once_never_exceed_the_room(self, server):
        running = most = 0

        async def count(task):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1
            return task

        async with executing(server.address, max_in_flight=5) as executor:
            executor.agent("count")(count)
            key = ("agent", "count")
            await server.until(lambda: server.registry.capable("default", key, ()))
            for number in range(50):
                await server.send(agent_task(f"r/{number}", kind="count"), key=key)
            for number in range(50):
                await server.outcome(f"r/{number}")
        assert 1 < most <= 5

    async def test_a_resize_reaches_the_server(self, server):
        async with executing(server.address, max_in_flight=5) as executor:
            (seat,) = server.registry.seats()
            executor.resize(2)
            await server.until(lambda: seat.max_in_flight == 2)


async def test_a_rejected_frame_is_logged(server, caplog):
    caplog.set_level(logging.INFO, "stepgraph_client")
    async with executing(server.address):
        (seat,) = server.registry.seats()
        attempt = pb.AttemptRef(task_id="r/t", attempt=1)
        seat.outlet.reject(attempt, "RESULT_INVALID", "no such thing")
        await server.until(lambda: "session.rejected" in actions(caplog))
    record = next(each for each in caplog.records if each.action == "session.rejected")
    assert (record.reason, record.detail) == ("RESULT_INVALID", "no such thing")


async def test_streams_are_logged_with_stable_actions(server, caplog):
    caplog.set_level(logging.INFO, "stepgraph_client")
    async with executing(server.address):
        pass
    assert actions(caplog) == ["session.opened", "executor.draining", "session.ended"]


def actions(caplog):
    return [
        record.action for record in caplog.records if record.name == "stepgraph_client.executor"
    ]


class TestDelays:
    def end(self, **fields):
        return StreamEnd(
            status=Status(code=grpc.StatusCode.UNAVAILABLE, message="", metadata={}, **fields)
        )

    def test_they_grow_and_are_jittered(self, monkeypatch):
        monkeypatch.setattr(
            _running, "RECONNECT", Patience(first_delay_s=0.1, factor=2.0, max_delay_s=10.0)
        )
        assert 0.05 <= _running._delay_s(self.end(), 1) <= 0.1
        assert 0.4 <= _running._delay_s(self.end(), 4) <= 0.8
        assert 5 <= _running._delay_s(self.end(), 1_000) <= 10
        assert len({_running._delay_s(self.end(), 4) for _ in range(20)}) > 10

    def test_the_servers_wish_is_followed_within_reason(self):
        assert _running._delay_s(self.end(retry_after_s=2.0), 1) == 2.0
        assert _running._delay_s(self.end(retry_after_s=9_999.0), 1) == 30.0
