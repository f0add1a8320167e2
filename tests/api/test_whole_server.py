"""The whole server over the wire: runs are walked, watched, asked about and cancelled, and survive a restart."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc.aio
import pytest

from stepgraph.v1 import executor_service_pb2 as ex
from stepgraph.v1 import (
    graph_service_pb2,
    interrupt_pb2,
    interrupt_service_pb2,
    run_pb2,
    run_service_pb2,
    task_pb2,
)
from stepgraph.v1.executor_service_pb2_grpc import ExecutorServiceStub
from stepgraph.v1.graph_service_pb2_grpc import GraphServiceStub
from stepgraph.v1.interrupt_service_pb2_grpc import InterruptServiceStub
from stepgraph.v1.run_service_pb2_grpc import RunServiceStub
from stepgraph_server.app import running_server
from tests.support.failures import failure_of
from tests.support.graphs import graph

ASK = graph(
    {"ask": {"action": {"human_approval": {"description": "Go on?"}}}, "done": {}},
    ["ask > done"],
    name="ask",
    terminal_nodes=["done"],
)
TOOL = graph(
    {"call": {"action": {"tool_call": {"tool_name": "echo", "args_template": '{"x": "1"}'}}}},
    name="tool",
)


@asynccontextmanager
async def client_of(settings):
    async with (
        running_server(settings) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        yield channel


@pytest.fixture
async def channel(settings):
    async with client_of(settings) as channel:
        yield channel


async def register(channel, definition):
    request = graph_service_pb2.RegisterGraphRequest(graph=definition)
    return await GraphServiceStub(channel).RegisterGraph(request)


async def events_of(call):
    found = []
    while (response := await call.read()) is not grpc.aio.EOF:
        found += [event for batch in response.batches for event in batch.events]
    return found


def start(run_id, reference, **fields):
    return run_service_pb2.StartRunRequest(run_id=run_id, graph={"reference": reference}, **fields)


async def get_run(channel, run_id):
    return (await RunServiceStub(channel).GetRun(run_service_pb2.GetRunRequest(run_id=run_id))).run


async def test_a_graph_without_executors_is_walked_to_its_end(channel):
    await register(channel, graph("a b c", ["a > b", "b > c"], terminal_nodes=["c"]))
    call = RunServiceStub(channel).StartAndWatchRun(
        run_service_pb2.StartAndWatchRunRequest(start=start("r1", "g"))
    )

    events = await events_of(call)

    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert events[-1].run_completed.result.terminal_node == "c"
    run = await get_run(channel, "r1")
    assert (run.status, run.iterations) == (run_pb2.RUN_STATUS_COMPLETED, 3)
    state = await RunServiceStub(channel).GetRunState(
        run_service_pb2.GetRunStateRequest(run_id="r1")
    )
    assert state.result.completed
    drawn = await GraphServiceStub(channel).RenderGraph(
        graph_service_pb2.RenderGraphRequest(run_id="r1")
    )
    assert drawn.mermaid.count("ran once") == 3


async def test_a_question_is_asked_listed_and_answered(channel):
    await register(channel, ASK)
    runs, interrupts = RunServiceStub(channel), InterruptServiceStub(channel)
    await runs.StartRun(start("r1", "ask"))
    watch = runs.WatchRun(run_service_pb2.WatchRunRequest(run_id="r1"))
    asked = ""
    while not asked:
        for batch in (await watch.read()).batches:
            for event in batch.events:
                asked = event.interrupt_opened.question.interrupt_id or asked

    listed = await interrupts.ListInterrupts(interrupt_service_pb2.ListInterruptsRequest())
    answered = await interrupts.AnswerInterrupt(
        interrupt_service_pb2.AnswerInterruptRequest(
            interrupt_id=asked, answer=interrupt_pb2.InterruptAnswer(proceed={}), answered_by="Ada"
        )
    )
    events = await events_of(watch)

    assert [question.interrupt_id for question in listed.questions] == [asked]
    assert answered.question.answered_by == "Ada"
    assert events[-1].WhichOneof("kind") == "run_completed"
    again = await failure_of(
        interrupts.AnswerInterrupt(
            interrupt_service_pb2.AnswerInterruptRequest(
                interrupt_id=asked, answer=interrupt_pb2.InterruptAnswer(abort={})
            )
        )
    )
    assert again.code is grpc.StatusCode.FAILED_PRECONDITION


class Executor:
    """An executor of one tool that echoes its arguments, written against the schema alone."""

    def __init__(self, channel, executor_id="e1"):
        self.call = ExecutorServiceStub(channel).Connect()
        self.hello = ex.ConnectRequest(
            hello=ex.Hello(
                protocol_version=1,
                executor_id=executor_id,
                instance_token=os.urandom(16),
                max_in_flight=10,
                capabilities=[
                    ex.Capability(
                        tool=ex.Capability.Tool(
                            definition={"name": "echo", "input_schema": '{"type": "object"}'}
                        )
                    )
                ],
            )
        )

    async def connect(self):
        await self.call.write(self.hello)
        frame = await self.call.read()
        assert frame.HasField("welcome"), frame
        return frame.welcome

    async def work(self):
        while (frame := await self.call.read()) is not grpc.aio.EOF:
            outcomes = [
                ex.AttemptOutcome(
                    task_id=task.task_id,
                    attempt=task.attempt,
                    succeeded=task_pb2.TaskResult(tool={"output": {"json": task.input.tool.args}}),
                )
                for task in frame.tasks.tasks
            ]
            if outcomes:
                await self.call.write(ex.ConnectRequest(results=ex.Results(outcomes=outcomes)))


async def test_an_executor_does_the_work_of_a_run(channel):
    await register(channel, TOOL)
    executor = Executor(channel)
    welcome = await executor.connect()
    working = asyncio.ensure_future(executor.work())
    call = RunServiceStub(channel).StartAndWatchRun(
        run_service_pb2.StartAndWatchRunRequest(start=start("r1", "tool"))
    )

    events = await events_of(call)
    listed = await ExecutorServiceStub(channel).ListExecutors(ex.ListExecutorsRequest())

    assert welcome.server_version.startswith("stepgraph/")
    assert events[-1].WhichOneof("kind") == "run_completed"
    [completed] = [e.task_completed for e in events if e.HasField("task_completed")]
    assert completed.result.tool.output.json == '{"x":"1"}'
    assert [e.executor_id for e in listed.executors] == ["e1"]
    executor.call.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def test_ten_equal_starts_make_one_run(channel):
    await register(channel, ASK)
    stub = RunServiceStub(channel)
    request = start("", "ask", request_id="once")

    runs = await asyncio.gather(*(stub.StartRun(request) for _ in range(10)))

    assert len({response.run.run_id for response in runs}) == 1
    other = await failure_of(stub.StartRun(start("", "ask", request_id="once", labels={"a": "b"})))
    assert other.reason == "REQUEST_ID_REUSED"
    elsewhere = await failure_of(
        stub.StartRun(start("", "ask", request_id="once", namespace="other"))
    )
    assert elsewhere.reason == "GRAPH_NOT_FOUND"


async def test_a_run_is_cancelled_and_cancelling_again_is_ok(channel):
    await register(channel, ASK)
    stub = RunServiceStub(channel)
    await stub.StartRun(start("r1", "ask"))

    for _ in range(2):
        response = await stub.CancelRun(run_service_pb2.CancelRunRequest(run_id="r1"))
        assert response.run.status == run_pb2.RUN_STATUS_CANCELLED


async def test_an_inline_graph_that_is_broken_is_refused(channel):
    request = run_service_pb2.StartRunRequest(graph={"definition": graph("a", ["a > nowhere"])})

    failure = await failure_of(RunServiceStub(channel).StartRun(request))

    assert failure.reason == "GRAPH_INVALID"


async def test_an_event_that_is_not_there_can_t_be_watched_from(channel):
    await register(channel, ASK)
    stub = RunServiceStub(channel)
    await stub.StartRun(start("r1", "ask"))

    failure = await failure_of(
        stub.WatchRun(run_service_pb2.WatchRunRequest(run_id="r1", after_sequence=1_000))
    )

    assert (failure.code, failure.reason) == (
        grpc.StatusCode.OUT_OF_RANGE,
        "SEQUENCE_OUT_OF_RANGE",
    )


async def test_what_was_started_is_still_there_after_a_restart(settings, tmp_path):
    on_disk = replace(settings, memory=False, data=tmp_path / "folder" / "runs.db")
    async with client_of(on_disk) as channel:
        await register(channel, ASK)
        first = await RunServiceStub(channel).StartRun(start("", "ask", request_id="once"))

    async with client_of(on_disk) as channel:
        again = await RunServiceStub(channel).StartRun(start("", "ask", request_id="once"))
        run = await get_run(channel, first.run.run_id)
        listed = await InterruptServiceStub(channel).ListInterrupts(
            interrupt_service_pb2.ListInterruptsRequest()
        )
        await InterruptServiceStub(channel).AnswerInterrupt(
            interrupt_service_pb2.AnswerInterruptRequest(
                interrupt_id=listed.questions[0].interrupt_id,
                answer=interrupt_pb2.InterruptAnswer(proceed={}),
            )
        )
        events = await events_of(
            RunServiceStub(channel).WatchRun(
                run_service_pb2.WatchRunRequest(run_id=first.run.run_id)
            )
        )

    assert again.run.run_id == first.run.run_id
    assert run.status == run_pb2.RUN_STATUS_SUSPENDED
    assert events[-1].WhichOneof("kind") == "run_completed"
