"""A whole server at a test's hand: scripts, a clock that jumps, and what is said of a run that won't go on."""

from __future__ import annotations

import asyncio
import time

import pytest

from stepgraph_client import (
    Failed,
    Graph,
    RunFailed,
    StepContext,
    ToolError,
    error_occurred,
    has_tool_calls,
    is_final_answer,
    limits,
    otherwise,
    proceed,
    question,
    retry,
)
from stepgraph_testing import Stuck, Workbench, call, calls, later


@pytest.fixture
async def bench():
    async with Workbench() as bench:
        yield bench


def react():
    graph = Graph("react", default_model="m")
    graph.llm("think", tools=True)
    graph.run_tools("act")
    graph.assign("answer")
    graph.edge("think", "act", when=has_tool_calls())
    graph.edge("act", "think")
    graph.edge("think", "answer", when=is_final_answer())
    graph.end("answer")
    return graph


async def test_a_loop_of_a_model_and_a_tool(bench):
    """The path, the tasks and the state are there to be looked at."""
    model = bench.model("m", replies=[calls(call("search", query="grpc")), "It is a protocol."])
    seen = []

    @bench.tool
    def search(query: str) -> str:
        """Search."""
        seen.append(query)
        return "found"

    run = await bench.start(react(), messages=["What is gRPC?"])
    assert await run.result() == "It is a protocol."
    assert run.path == ["think", "act", "think", "answer"]
    assert [task.label for task in run.tasks] == ["llm m", "tool search", "llm m"]
    assert run.attempts("act") == [1]
    assert seen == ["grpc"]
    assert len(model.asked) == 2
    assert model.left == 0
    assert len(run.messages) == 4
    assert run.status == "completed"


async def test_tries_and_their_delays_take_no_time(bench):
    """Three tries an hour apart, and a tool that takes a day."""
    bench.tools("flaky", [Failed("DOWN", "no", retryable=True)] * 2 + [later("1d", "ok")])
    policy = retry(max_tries=3, first_delay="1h", jitter=0)
    graph = Graph("g")
    graph.tool("try", "flaky", {}, retry=policy, limits=limits(run="2d"))
    before = time.monotonic()
    run = await bench.start(graph)
    assert await run.result() == "ok"
    assert time.monotonic() - before < 10
    assert run.attempts("tool flaky") == [3]
    assert run.tasks[0].failures == ("DOWN", "DOWN")
    started, ended = (run.history[index].time.ToDatetime() for index in (0, -1))
    assert (ended - started).total_seconds() > 86400


async def test_a_limit_of_an_attempt_comes_before_a_slow_result(bench):
    """What would take ten minutes is cut off after one."""
    bench.tools("slow", lambda _: later("10m", "too late"))
    graph = Graph("g")
    graph.tool("try", "slow", {}, limits=limits(run="1m"), retry=retry(max_tries=1))
    graph.assign("caught")
    graph.edge("try", "caught", when=error_occurred("RUN_LIMIT"))
    run = await bench.start(graph)
    await run.finished()
    assert run.path == ["try", "caught"]


async def test_a_question_is_answered_when_it_is_there(bench):
    """Asked, looked at, answered; and what would have been the deadline did not come."""
    graph = Graph("g")
    graph.approval("ask", "Deploy?", interrupt=question(deadline="1h"))
    graph.assign("deploy")
    graph.edge("ask", "deploy")
    run = await bench.start(graph)
    asked = await run.question("ask")
    assert asked.reason.human.prompt == "Deploy?"
    await run.answer(proceed())
    await run.finished()
    assert run.path == ["ask", "deploy"]


async def test_a_run_that_waits_says_for_what(bench):
    """Nobody answers, so waiting for the end fails at once, with the question."""
    graph = Graph("g", time_limit="1h")
    graph.approval("ask", "Deploy?")
    run = await bench.start(graph)
    with pytest.raises(Stuck, match=r"(?s)waits for.*ask: an answer to 'Deploy\?'"):
        await run.finished()
    assert run.status == "open"
    assert "Deploy?" in repr(run)


async def test_what_nobody_can_do_is_named(bench):
    """A tool that was forgotten is not found out by a limit of ten minutes."""
    graph = Graph("g")
    graph.tool("try", "forgotten", {})
    run = await bench.start(graph)
    with pytest.raises(Stuck, match="tool forgotten: no executor can do it"):
        await run.finished()
    await bench.advance("10m")
    await run.finished()
    assert run.failure.code == "QUEUE_LIMIT"


async def test_waiting_for_what_will_not_be_fails_with_how_it_ended(bench):
    """A question that was never asked; the story says which way the run took."""
    graph = Graph("g")
    graph.assign("only")
    run = await bench.start(graph)
    with pytest.raises(Stuck, match=r"(?s)to ask something.*path: only.*it completed"):
        await run.question()


async def test_a_script_that_ends_too_early_fails_the_run(bench):
    """And says how many lines it has."""
    bench.model("m", replies=[])
    run = await bench.start(react(), messages=["hi"])
    with pytest.raises(RunFailed, match="the script of the model m has 0 lines"):
        await run.result()


async def test_scripts_speak_as_tools_and_models_do(bench):
    """Errors of tools are results; functions see what they are asked."""
    bench.model(
        "m",
        replies=lambda request: (
            "done" if len(request.messages) > 1 else calls(call("t", n=1), text="let me see")
        ),
    )
    tool = bench.tools("t", [ToolError("no such thing")])
    bench.agents("helper", lambda task: task.upper())
    run = await bench.start(react(), messages=["hi"])
    assert await run.result() == "done"
    assert tool.asked == [{"n": 1}]
    graph = Graph("g")
    graph.delegate("ask", "helper", "please")
    assert await (await bench.start(graph)).result() == "PLEASE"


async def test_a_tool_may_be_called_while_the_test_does_something_else(bench):
    """What a task of the test does beside keeps a run from counting as stuck."""
    graph = Graph("g")
    graph.approval("ask", "Deploy?")
    run = await bench.start(graph)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(run.finished())
        asked = await run.question()
        await bench.client.answer(asked.interrupt_id, proceed())
    assert waiting.result().status == "completed"


async def test_work_that_never_ends_is_told(monkeypatch):
    """Patience is for work that is really under way."""
    async with Workbench(patience_s=0.3) as bench:

        @bench.tool
        async def hang() -> None:
            """Hang."""
            await asyncio.Event().wait()

        graph = Graph("g")
        graph.tool("try", "hang", {})
        run = await bench.start(graph)
        with pytest.raises(Stuck, match="tool hang: attempt 1 is under way"):
            await run.finished()


async def test_a_cancelled_run_and_one_that_came_so_far(bench):
    """Cancelled in the middle of a sleep of a day."""
    bench.tools("slow", [later("1d")])
    graph = Graph("g")
    graph.assign("first")
    graph.tool("second", "slow", {})
    graph.edge("first", "second", when=otherwise())
    run = await bench.start(graph)
    await run.reached(lambda so_far: "second" in so_far.path)
    await run.cancel("enough")
    assert run.status == "cancelled"
    with pytest.raises(AssertionError, match="there are tool slow"):
        run.attempts("nothing")


async def test_step_programs_run_here_too(bench):
    """With effects, sleeps and updates, on the real server."""

    @bench.tool
    def double(n: int) -> int:
        """Double."""
        return 2 * n

    @bench.step("p")
    async def program(ctx: StepContext) -> object:
        first, second = await ctx.all(ctx.tool("double", n=1), ctx.tool("double", n=2))
        await ctx.sleep("1d")
        ctx.update(variables={"sum": first + second})
        return first + second

    graph = Graph("g")
    graph.step("count", "p")
    run = await bench.start(graph)
    assert await run.result() == 6
    assert run.variables["sum"] == 6


async def test_the_state_is_there_at_the_end_only(bench):
    """Before, it would be something half."""
    graph = Graph("g")
    graph.assign("only")
    run = await bench.start(graph)
    with pytest.raises(AssertionError, match="finished"):
        _ = run.state


async def test_a_run_goes_on_at_the_next_workbench(tmp_path):
    """On a file, as after a restart: the question is still there."""
    graph = Graph("g")
    graph.approval("ask", "Deploy?")
    async with Workbench(data=tmp_path / "runs.db") as bench:
        run = await bench.start(graph)
        await run.question()
    async with Workbench(data=tmp_path / "runs.db") as bench:
        again = await bench.run(run.run_id)
        assert again.path == ["ask"]
        await again.answer(proceed())
        assert (await again.finished()).status == "completed"
