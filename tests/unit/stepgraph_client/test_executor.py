"""The Executor as people use it: functions are declared, it runs, and it stops."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import asynccontextmanager

import pytest
from grpc import StatusCode
from pydantic import BaseModel

from stepgraph.v1 import task_pb2
from stepgraph_client.errors import Status, WrongState
from stepgraph_client.executor import Executor
from stepgraph_client.task_context import (  # noqa: TC001  # looked up by name
    ConditionContext,
    TaskContext,
)
from tests.support.executor_server import ExecutorServer

Input = task_pb2.TaskInput


class Place(BaseModel):
    city: str


@pytest.fixture
async def server():
    async with ExecutorServer() as server:
        yield server


@asynccontextmanager
async def running(executor):
    async with asyncio.TaskGroup() as group:
        run = group.create_task(executor.run())
        await asyncio.wait_for(executor.connected(), 10)
        yield
        executor.stop()
        await asyncio.wait_for(run, 10)


async def test_every_kind_of_function_does_its_work(server):
    executor = Executor(server.address, labels={"region": "eu"}, max_in_flight=7, threads=2)

    @executor.model("rule-planner", "other-*")
    async def plan(request, ctx: TaskContext):
        return f"{request.model} for {ctx.run_id}"

    @executor.tool()
    def find(place: Place, limit: int = 3) -> list[str]:
        """Find it."""
        return [place.city] * limit

    @executor.agent("researcher")
    async def research(task: str, ctx: TaskContext):
        return {"task": task, "attempt": ctx.attempt}

    @executor.condition("is_safe")
    async def is_safe(ctx: ConditionContext) -> bool:
        return ctx.iterations < 3

    @executor.effect("mail")
    def mail(payload):
        return payload.text.upper()

    async with running(executor):
        (seat,) = server.registry.seats()
        assert seat.labels == {"region": "eu"}
        assert seat.max_in_flight == 7
        assert seat.client_name.startswith("stepgraph-python/")
        assert seat.abilities.tools["find"].definition.description == "Find it."
        model = Input()
        model.llm.model = "other-1"
        reply = await server.call(model, "r1/a")
        assert reply.succeeded.llm.message.content[0].text.text == "other-1 for r1"
        args = '{"place": {"city": "Rome"}, "limit": 2}'
        found = await server.call(Input(tool=Input.Tool(name="find", args=args)), "r1/b")
        assert found.succeeded.tool.output.json == '["Rome","Rome"]'
        agent = Input(agent=Input.Agent(agent_kind="researcher", task="it"))
        done = await server.call(agent, "r1/c")
        assert done.succeeded.agent.output.json == '{"task":"it","attempt":1}'
        condition = Input(condition=Input.Condition(name="is_safe", iterations=2))
        assert (await server.call(condition, "r1/d")).succeeded.condition.holds
        effect = Input(effect={"kind": "mail", "payload": {"text": "hi"}})
        assert (await server.call(effect, "r1/e")).succeeded.effect.output.text == "HI"


async def test_decorators_return_the_function_itself():
    executor = Executor()

    def f(x: int = 1):
        return x

    assert executor.tool(name="a")(f) is f
    assert executor.agent("a")(f) is f
    assert executor.model("a")(f) is f
    assert executor.condition("a")(f) is f
    assert executor.effect("a")(f) is f


async def test_each_executor_has_an_id_and_a_secret_of_its_own():
    first, second = Executor(), Executor()
    assert first.executor_id != second.executor_id
    assert first.server == "127.0.0.1:7233"
    assert Executor(executor_id="mine", namespace="blue").executor_id == "mine"


async def test_what_is_declared_while_it_runs_is_offered_at_once(server):
    executor = Executor(server.address)
    async with running(executor):

        @executor.tool()
        def late() -> str:
            return "better than never"

        await server.until(lambda: server.registry.capable("default", ("tool", "late", ""), ()))
        outcome = await server.call(Input(tool=Input.Tool(name="late")))
        assert outcome.succeeded.tool.output.text == "better than never"


async def test_it_runs_once_at_a_time_and_again_afterwards(server):
    executor = Executor(server.address, max_in_flight=3)
    async with running(executor):
        with pytest.raises(RuntimeError, match="runs already"):
            await executor.run()
        executor.resize(5)
    executor.stop()
    executor.resize(4)
    async with running(executor):
        assert (await server.seat()).max_in_flight == 4


async def test_it_may_be_waited_for_before_it_runs(server):
    executor = Executor(server.address)
    waiting = asyncio.ensure_future(executor.connected())
    await asyncio.sleep(0)
    async with running(executor):
        await asyncio.wait_for(waiting, 5)


class TestSignals:
    def test_sigterm_stops_it_well(self):
        executor = Executor("127.0.0.1:1")
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        executor.run_forever()

    def test_a_second_signal_ends_it_at_once(self):
        program = """
            import asyncio, sys
            from stepgraph_client.executor import Executor

            executor = Executor(sys.argv[1], drain_timeout_s=60)

            @executor.agent("k")
            async def work(task):
                print("working", flush=True)
                await asyncio.Event().wait()

            executor.run_forever()
            print("ended", flush=True)
        """

        async def scenario():
            async with ExecutorServer() as server:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-c", textwrap.dedent(program), server.address),
                    stdout=subprocess.PIPE,
                )
                agent = Input(agent=Input.Agent(agent_kind="k"))
                await server.send(task_pb2.Task(task_id="r/t", input=agent))
                assert await process.stdout.readline() == b"working\n"
                process.send_signal(signal.SIGTERM)
                seat = await server.seat()
                await server.until(lambda: seat.max_in_flight == 0)
                process.send_signal(signal.SIGINT)
                assert await process.stdout.readline() == b"ended\n"
                assert await asyncio.wait_for(process.wait(), 10) == 0

        asyncio.run(scenario())


class TestFatalEnds:
    def test_a_badly_named_executor_ends_with_one_line_that_says_what_to_do(self):
        """What connecting again can't mend ends the process with a reason and a remedy, and no traceback."""
        program = "import sys; from stepgraph_client import Executor; Executor(sys.argv[1], executor_id='?').run_forever()"

        async def scenario():
            async with ExecutorServer() as server:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-c", program, server.address), stderr=subprocess.PIPE
                )
                return process, (await process.communicate())[1].decode()

        process, said = asyncio.run(scenario())
        assert process.returncode == 1
        assert "Traceback" not in said
        assert "the executor has ended: HELLO_INVALID: " in said
        assert "What to do: correct how the executor '?' was made" in said

    async def test_who_catches_it_finds_the_refusal_in_it(self, server, monkeypatch):
        """The refusal itself is the cause of the exit."""
        executor = Executor(server.address, executor_id="w")
        refused = WrongState(
            Status(
                code=StatusCode.ABORTED, message="gone", reason="SESSION_SUPERSEDED", metadata={}
            )
        )

        async def fail():
            raise refused

        monkeypatch.setattr(executor, "_run_until_signal", fail)
        with pytest.raises(SystemExit, match="executor_id of its own") as ended:
            await asyncio.to_thread(executor.run_forever)
        assert ended.value.__cause__ is refused


def test_a_server_that_is_not_there_is_told_to_who_has_configured_no_logging():
    """Without any logging of the program's, the address and the reason stand on stderr."""
    program = "from stepgraph_client import Executor; Executor('127.0.0.1:1').run_forever()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True
    ) as process:
        line = process.stderr.readline()
        process.terminate()
    assert "stepgraph: can't reach the stepgraph server at 127.0.0.1:1: " in line
    assert "trying again in" in line


class TestDeclaring:
    def test_a_tool_needs_no_parentheses(self):
        """`@executor.tool` is the same as `@executor.tool()`."""
        executor = Executor()

        @executor.tool
        def find(text: str) -> str:
            return text

        assert find("x") == "x"
        (capability,) = executor._functions.capabilities
        assert capability.tool.definition.name == "find"

    def test_a_name_in_the_place_of_the_function_is_refused(self):
        """The first argument is no name; the message says where it goes."""
        with pytest.raises(TypeError, match=r"write @executor.tool\(name='find'\)"):
            Executor().tool("find")

    def test_a_model_without_a_name_is_refused(self):
        """A model that nobody can ask for is a slip."""
        with pytest.raises(TypeError, match=r"has nothing; write @executor.model\('claude-\*'\)"):
            Executor().model()

    @pytest.mark.parametrize("verb", ["model", "agent", "condition", "effect", "step"])
    def test_what_needs_a_name_needs_its_parentheses(self, verb):
        """Without them the decorator gets the function in the place of a name."""
        with pytest.raises(
            TypeError, match=rf"executor.{verb} needs names, .*write @executor.{verb}"
        ):
            getattr(Executor(), verb)(lambda task: task)
