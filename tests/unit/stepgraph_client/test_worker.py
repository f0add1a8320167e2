"""What becomes of a task: its function is called, and its attempt ends with one outcome, whatever the function does."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from stepgraph.v1 import conversation_pb2, llm_pb2, task_pb2
from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph_client._functions import Functions
from stepgraph_client._session import ExecutorSession
from stepgraph_client._session_events import Identity
from stepgraph_client._worker import Worker
from stepgraph_client.errors import NotFound, Status, TooMuch, Unreachable
from stepgraph_client.task_context import TaskHost
from stepgraph_client.task_errors import Failed, ToolError
from stepgraph_client.tools import tool_of

Input = task_pb2.TaskInput
MISSING = Status(code=grpc.StatusCode.NOT_FOUND, message="no", reason="TASK_NOT_FOUND", metadata={})
TOO_LARGE = Status(
    code=grpc.StatusCode.RESOURCE_EXHAUSTED,
    message="no",
    reason="PAYLOAD_TOO_LARGE",
    metadata={"limit_bytes": "9"},
)

PAGE = "no such page"


class Values:
    """Stored values; `error` is what storing ends with."""

    def __init__(self):
        self.error = None
        self.stored = 0

    async def externalize(self, message, limit):
        self.stored += 1
        if self.error is not None:
            raise self.error


class Desk:
    """A worker with a session that is welcomed, and no stream."""

    def __init__(self, group):
        self.group = group
        self.functions = Functions()
        identity = Identity(executor_id="w", instance_token=b"x" * 16, labels={})
        self.session = ExecutorSession(identity, [], 100)
        self.session.connected(0.0)
        self.session.data_to_send()
        self.session.receive(pb.ConnectResponse(welcome={}).SerializeToString(), 0.0)
        self.inputs = {}
        self.values = Values()
        self.woken = asyncio.Event()
        self.pool = ThreadPoolExecutor(2)
        self.worker = Worker(
            executor_id="w",
            functions=self.functions,
            session=self.session,
            host=TaskHost(asyncio.get_running_loop(), self.values),
            pool=self.pool,
            read_input=self.read_input,
            wake=self.woken.set,
        )

    async def read_input(self, task):
        await asyncio.sleep(0)
        if task.task_id not in self.inputs:
            raise NotFound(MISSING)
        return self.inputs[task.task_id]

    def agent(self, function, kind="k"):
        self.functions.add_agent(kind, function)

    def start(self, task_input, task_id="r/t"):
        task = task_pb2.Task(task_id=task_id, attempt=1, input=task_input)
        data = pb.ConnectResponse(tasks={"tasks": [task]}).SerializeToString()
        for event in self.session.receive(data, 0.0):
            self.worker.start(event.tasks, self.group)

    async def frames(self):
        while True:
            found = [pb.ConnectRequest.FromString(data) for data in self.session.data_to_send()]
            found = [frame for frame in found if not frame.HasField("accepted")]
            if found:
                return found
            self.woken.clear()
            await asyncio.wait_for(self.woken.wait(), 5)

    async def outcome(self):
        while True:
            for frame in await self.frames():
                for outcome in frame.results.outcomes:
                    return outcome

    async def do(self, task_input):
        self.start(task_input)
        return await self.outcome()


@pytest.fixture
async def desk():
    async with asyncio.TaskGroup() as group:
        desk = Desk(group)
        yield desk
        desk.worker.abandon()
    desk.pool.shutdown()


def agent(task="", kind="k"):
    return Input(agent=Input.Agent(agent_kind=kind, task=task))


def tool(name, args="{}"):
    return Input(tool=Input.Tool(name=name, args=args))


class TestEnding:
    async def test_an_async_function_runs_on_the_loop(self, desk):
        async def echo(task):
            assert threading.current_thread() is threading.main_thread()
            return task

        desk.agent(echo)
        outcome = await desk.do(agent("hi"))
        assert (outcome.task_id, outcome.attempt) == ("r/t", 1)
        assert outcome.succeeded.agent.output.text == "hi"
        assert desk.session.held == 0

    async def test_a_plain_function_runs_in_a_thread(self, desk):
        desk.agent(lambda task: threading.current_thread().name)
        assert "MainThread" not in (await desk.do(agent())).succeeded.agent.output.text

    async def test_a_plain_function_may_return_something_to_wait_for(self, desk):
        async def echo(prefix, task):
            return prefix + task

        def plain(task):
            return echo("> ", task)

        desk.agent(plain)
        assert (await desk.do(agent("x"))).succeeded.agent.output.text == "> x"

    async def test_tools_get_their_arguments(self, desk):
        async def add(a: int, b: int = 2) -> int:
            return a + b

        desk.functions.add_tool(tool_of(add), add, requires_approval=False)
        outcome = await desk.do(tool("add", '{"a": 9007199254740993}'))
        assert outcome.succeeded.tool.output.json == "9007199254740995"

    async def test_bad_arguments_are_a_result_that_names_the_field(self, desk):
        async def add(a: int) -> int:
            raise AssertionError

        desk.functions.add_tool(tool_of(add), add, requires_approval=False)
        result = (await desk.do(tool("add", '{"a": "x"}'))).succeeded.tool
        assert result.is_error
        assert result.output.text.startswith("bad arguments: a: ")

    async def test_trouble_of_a_tool_is_a_result(self, desk):
        async def fetch():
            raise ToolError(PAGE)

        desk.functions.add_tool(tool_of(fetch), fetch, requires_approval=False)
        result = (await desk.do(tool("fetch"))).succeeded.tool
        assert (result.is_error, result.output.text) == (True, PAGE)

    async def test_trouble_of_anything_else_is_a_failure(self, desk):
        async def fail(task):
            raise ToolError(PAGE)

        desk.agent(fail)
        assert (await desk.do(agent())).failed.failure.code == "EXECUTOR_ERROR"

    async def test_a_failure_is_what_the_function_says(self, desk):
        def fail(task):
            raise Failed("RATE_LIMITED", "later", retryable=True, retry_after="1s")

        desk.agent(fail)
        failed = (await desk.do(agent())).failed
        assert failed.failure.code == "RATE_LIMITED"
        assert failed.failure.source == "w"
        assert failed.retry_after.seconds == 1

    async def test_any_exception_is_a_failure_and_its_traceback_is_logged_here(self, desk, caplog):
        async def fail(task):
            raise KeyError("secret-free")

        desk.agent(fail)
        with caplog.at_level(logging.INFO, "stepgraph_client"):
            failure = (await desk.do(agent("private prompt"))).failed.failure
        assert failure.code == "EXECUTOR_ERROR"
        assert failure.message == "KeyError: 'secret-free'"
        (record,) = caplog.records
        assert record.action == "task.failed"
        assert record.exc_info
        assert "private prompt" not in caplog.text

    @pytest.mark.parametrize("is_async", [False, True])
    async def test_a_function_that_would_end_the_process_fails_alone(self, desk, is_async):
        def leave(task):
            raise SystemExit(3)

        async def leave_the_loop(task):
            raise SystemExit(3)

        desk.agent(leave_the_loop if is_async else leave)
        failure = (await desk.do(agent())).failed.failure
        assert (failure.code, failure.message) == ("EXECUTOR_ERROR", "SystemExit: 3")

    async def test_what_was_returned_in_vain_is_a_failure(self, desk):
        desk.functions.add_condition("c", lambda: "maybe")
        outcome = await desk.do(Input(condition=Input.Condition(name="c")))
        assert outcome.failed.failure.code == "RESULT_INVALID"
        assert not outcome.failed.failure.retryable

    async def test_an_exception_group_is_a_failure(self, desk):
        async def fail(task):
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))
                raise ValueError(task)

        desk.agent(fail)
        assert "ExceptionGroup" in (await desk.do(agent())).failed.failure.message

    async def test_ids_of_calls_may_be_empty(self, desk):
        call = conversation_pb2.ContentBlock(tool_call={"name": "add", "args": "{}"})
        reply = conversation_pb2.Message(content=[call, call])
        desk.functions.add_models(("m",), lambda request: reply)
        task_input = Input()
        task_input.llm.model = "m"
        message = (await desk.do(task_input)).succeeded.llm.message
        assert list(message.content) == [call, call]


class TestGivingBack:
    async def test_a_kind_of_work_that_is_not_known_is_rejected(self, desk):
        desk.start(Input.FromString(bytes.fromhex("ba3e00")))
        (frame,) = await desk.frames()
        assert frame.reject.reason == "UNKNOWN_VARIANT"
        assert frame.reject.attempt == pb.AttemptRef(task_id="r/t", attempt=1)
        assert desk.session.held == 0

    async def test_work_that_nothing_here_does_is_rejected(self, desk):
        desk.start(agent(kind="other"))
        (frame,) = await desk.frames()
        assert frame.reject.reason == "INVALID_REQUEST"
        assert "agent other" in frame.reject.message


class TestLargeInputs:
    async def test_an_input_that_is_absent_is_read(self, desk):
        async def echo(task):
            return task

        desk.agent(echo)
        desk.inputs["r/t"] = agent("long" * 1_000)
        assert (await desk.do(None)).succeeded.agent.output.text == "long" * 1_000

    async def test_an_input_that_is_gone_gives_the_attempt_back(self, desk):
        desk.start(None)
        (frame,) = await desk.frames()
        assert frame.reject.reason == "TASK_NOT_FOUND"

    async def test_an_attempt_that_is_cancelled_while_its_input_is_read_is_not_begun(self, desk):
        desk.agent(lambda task: pytest.fail("it was called"))
        desk.inputs["r/t"] = agent()
        desk.start(None)
        await asyncio.sleep(0)
        desk.worker.cancel([("r/t", 1)], "enough")
        assert (await desk.outcome()).HasField("cancelled")


class TestLargeResults:
    async def test_large_values_are_stored_before_they_are_reported(self, desk):
        desk.agent(lambda task: "x" * 300_000)
        await desk.do(agent())
        assert desk.values.stored == 1

    async def test_small_ones_are_not_looked_through(self, desk):
        desk.agent(lambda task: "x")
        await desk.do(agent())
        assert desk.values.stored == 0

    async def test_what_the_server_does_not_store_is_a_failure_that_is_not_tried_again(self, desk):
        desk.values.error = TooMuch(TOO_LARGE)
        desk.agent(lambda task: "x" * 300_000)
        failure = (await desk.do(agent())).failed.failure
        assert failure.code == "PAYLOAD_TOO_LARGE"
        assert failure.HasField("retryable")
        assert not failure.retryable
        assert failure.details["limit_bytes"] == "9"

    async def test_storing_that_fails_is_a_technical_failure(self, desk):
        desk.values.error = Unreachable("here", MISSING)
        desk.agent(lambda task: "x" * 300_000)
        failure = (await desk.do(agent())).failed.failure
        assert failure.code == "EXECUTOR_ERROR"
        assert failure.message.startswith("Unreachable: ")


class TestCancelling:
    async def test_an_async_function_is_cancelled(self, desk):
        async def wait(task):
            await asyncio.Event().wait()

        desk.agent(wait)
        desk.start(agent())
        await asyncio.sleep(0)
        desk.worker.cancel([("r/t", 1)], "enough")
        outcome = await desk.outcome()
        assert outcome.HasField("cancelled")
        assert not outcome.cancelled.HasField("partial")

    async def test_one_that_has_not_begun_reports_too(self, desk):
        desk.agent(lambda task: pytest.fail("it was called"))
        desk.start(agent())
        desk.worker.cancel([("r/t", 1)], "enough")
        assert (await desk.outcome()).HasField("cancelled")

    async def test_what_it_returns_though_cancelled_is_partial_with_its_usage(self, desk):
        async def reply(request, ctx):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                assert ctx.cancelled
                usage = llm_pb2.Usage(output_tokens=5)
                return llm_pb2.LlmResponse(model=ctx.cancel_reason, usage=usage)

        desk.functions.add_models(("m",), reply)
        task_input = Input()
        task_input.llm.model = "m"
        desk.start(task_input)
        await asyncio.sleep(0)
        desk.worker.cancel([("r/t", 1)], "enough")
        cancelled = (await desk.outcome()).cancelled
        assert cancelled.partial.llm.model == "enough"
        assert cancelled.usage.output_tokens == 5

    async def test_text_that_a_model_has_shown_is_its_partial_reply(self, desk):
        async def reply(request, ctx):
            ctx.text_delta("half an ")
            ctx.text_delta("answer")
            await asyncio.Event().wait()

        desk.functions.add_models(("m",), reply)
        task_input = Input()
        task_input.llm.model = "m"
        desk.start(task_input)
        await asyncio.sleep(0)
        desk.worker.cancel([("r/t", 1)], "enough")
        partial = (await desk.outcome()).cancelled.partial.llm
        assert partial.message.content[0].text.text == "half an answer"
        assert partial.stop_reason == llm_pb2.LLM_STOP_REASON_OTHER

    async def test_a_function_in_a_thread_sees_a_flag(self, desk):
        began = threading.Event()

        def wait(task, ctx):
            began.set()
            while not ctx.cancelled:
                threading.Event().wait(0.001)
            ctx.raise_if_cancelled()

        desk.agent(wait)
        desk.start(agent())
        await asyncio.to_thread(began.wait)
        desk.worker.cancel([("r/t", 1)], "enough")
        assert (await desk.outcome()).HasField("cancelled")

    async def test_a_cancellation_of_its_own_making_is_a_failure(self, desk):
        async def fail(task):
            raise asyncio.CancelledError

        desk.agent(fail)
        assert (await desk.do(agent())).failed.failure.message == "CancelledError"

    async def test_what_has_ended_can_not_be_cancelled(self, desk):
        desk.agent(lambda task: "done")
        await desk.do(agent())
        desk.worker.cancel([("r/t", 1), ("r/unknown", 1)], "enough")
        assert desk.session.unacknowledged == 1

    async def test_an_attempt_that_is_lost_reports_nothing(self, desk):
        async def wait(task):
            await asyncio.Event().wait()

        desk.agent(wait)
        desk.start(agent())
        await asyncio.sleep(0)
        desk.session.disconnected()
        desk.session.connected(0.0)
        desk.session.data_to_send()
        welcome = pb.ConnectResponse(welcome={}).SerializeToString()
        (event,) = desk.session.receive(welcome, 0.0)
        desk.worker.cancel(event.lost, "lost")
        await asyncio.sleep(0.01)
        assert desk.session.data_to_send() == []
        assert desk.session.unacknowledged == 0

    async def test_what_is_abandoned_reports_nothing(self, desk):
        async def wait(task):
            await asyncio.Event().wait()

        began, stop = threading.Event(), threading.Event()

        def block(task):
            began.set()
            stop.wait()

        desk.agent(wait)
        desk.agent(block, kind="thread")
        desk.start(agent())
        desk.start(agent(kind="thread"), task_id="r/u")
        await asyncio.to_thread(began.wait)
        desk.worker.abandon()
        await asyncio.sleep(0.01)
        assert desk.session.unacknowledged == 0
        stop.set()


class TestProgress:
    async def test_progress_goes_up_before_the_result(self, desk):
        async def reply(task, ctx):
            ctx.text_delta("a")
            await ctx.progress_text("b")
            return "ab"

        desk.agent(reply)
        desk.start(agent())
        frames = await desk.frames()
        while not any(frame.HasField("results") for frame in frames):
            frames += await desk.frames()
        texts = [
            (piece.index, piece.text.text)
            for frame in frames
            for item in frame.progress.items
            for piece in item.progress
        ]
        assert texts == [(0, "a"), (1, "b")]
        assert frames[-1].HasField("results")

    async def test_a_sign_of_life_goes_up_by_itself(self, desk):
        async def wait(task, ctx):
            ctx.alive()
            await asyncio.Event().wait()

        desk.agent(wait)
        desk.start(agent())
        (frame,) = await desk.frames()
        (item,) = frame.progress.items
        assert (item.task_id, len(item.progress)) == ("r/t", 0)

    async def test_nobody_sees_what_a_thread_shows_after_its_attempt_was_lost(self, desk):
        desk.worker._show(("r/t", 1), task_pb2.TaskProgress())
        assert not desk.woken.is_set()

    async def test_what_is_abandoned_before_it_began_reports_nothing(self, desk):
        desk.agent(lambda task: pytest.fail("it was called"))
        desk.start(agent())
        desk.worker.abandon()
        await asyncio.sleep(0.01)
        assert desk.session.unacknowledged == 0


async def test_a_poll_whose_turns_are_not_held_is_given_back(desk):
    """Another process had them; the server sends the poll again with all of them."""
    desk.functions.add_step("p", lambda ctx: None)
    desk.start(Input(step={"program": "p", "turn": 2, "history_start": 2}), "r/1/n/t2/poll")
    (frame,) = await desk.frames()
    assert frame.reject.attempt.task_id == "r/1/n/t2/poll"
    assert frame.reject.reason == "INVALID_REQUEST"
    assert "turns before 2" in frame.reject.message
