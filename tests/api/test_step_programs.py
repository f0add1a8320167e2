"""Step programs of Python on a real server: replayed where another process takes over, awaited, asked, handed on."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from stepgraph.v1 import interrupt_pb2
from stepgraph_client import (
    EffectFailed,
    Executor,
    Failed,
    Graph,
    RunFailed,
    StepContext,
    done,
    failed,
    goto,
    limits,
    node,
    program,
    reply,
    retry,
)
from stepgraph_client.effects import outcome
from stepgraph_testing import Workbench, calls, later
from stepgraph_testing.replies import call


@pytest.fixture
async def bench():
    async with Workbench() as bench:
        yield bench


def one_step(**options):
    graph = Graph("g", default_model="m")
    graph.step("work", "p", **options)
    return graph


@asynccontextmanager
async def working(bench, call, **options):
    """Let another executor of the bench's server be the program `p`."""
    executor = Executor(bench.address, drain_timeout_s=0.1, **options)
    executor.step("p")(call)
    async with asyncio.TaskGroup() as group:
        group.create_task(executor.run())
        await executor.connected()
        yield
        executor.stop()


async def test_every_kind_of_effect_comes_back(bench):
    """Models, tools, agents, custom work and sleeps, in one turn and one after the other."""
    bench.model("m", replies=["a word", calls(call("count", n=1), text="hm")])
    bench.tools("count", lambda arguments: arguments["n"] + 1)
    bench.agents("helper", lambda task: task.upper())

    @bench.effect("mail")
    def mail(payload):
        return {"sent": payload.text}

    @bench.step("p")
    async def program(ctx: StepContext):
        first = await ctx.llm("Say a word")
        second = await ctx.llm("Count", tools=[], system_prompt="be brief")
        both = await ctx.all(ctx.tool("count", n=1), ctx.delegate("helper", "please"))
        await ctx.sleep("1h")
        sent = await ctx.effect("mail", "hello")
        return [first.text, [each.name for each in second.calls], *both, sent]

    run = await bench.start(one_step())
    assert await run.result() == ["a word", ["count"], 2, "PLEASE", {"sent": "hello"}]
    assert [task.label for task in run.tasks if task.label.startswith("tool")] == ["tool count"]


async def test_a_program_is_not_replayed_while_its_process_lives(bench):
    """It is begun once, whatever the number of its turns; and polls do not repeat what it was told."""
    begun = []
    bench.tools("t", lambda _: "x")
    histories = []

    @bench.step("p")
    async def program(ctx: StepContext):
        begun.append(ctx.run_id)
        for _ in range(20):
            await ctx.tool("t")
            histories.append(len(ctx._poll.history))
        return "end"

    run = await bench.start(one_step())
    assert await run.result() == "end"
    assert len(begun) == 1
    assert set(histories) == {0}


async def as_coroutine(ctx: StepContext):
    first = await ctx.tool("tool", name="a")
    await ctx.ask("go on?")
    return first + await ctx.tool("tool", name="b")


def as_generator(ctx: StepContext):
    first = yield ctx.tool("tool", name="a")
    yield ctx.ask("go on?")
    second = yield ctx.tool("tool", name="b")
    return first + second


def as_function(ctx: StepContext):
    match ctx.turn:
        case 0:
            return ctx.tool("tool", name="a")
        case 1:
            return ctx.ask("go on?")
        case 2:
            return ctx.tool("tool", name="b")
        case _:
            first = outcome(ctx.history[1].results[0])
            return done(first + outcome(ctx.results[0]))


@pytest.mark.parametrize("program_of_any_kind", [as_coroutine, as_generator, as_function])
async def test_another_process_goes_on_from_the_history(bench, program_of_any_kind):
    """An executor leaves between two turns; the next one replays, and what was done is not done again."""
    tool = bench.tools("tool", lambda arguments: arguments["name"].upper())

    async with working(bench, program_of_any_kind, executor_id="first"):
        run = await bench.start(one_step())
        assert (await run.question()).takes_reply
    async with working(bench, program_of_any_kind, executor_id="second"):
        await run.answer(reply(value=True))
        assert await run.result() == "AB"
    assert [asked["name"] for asked in tool.asked] == ["a", "b"]
    assigned = {
        event.task_assigned.assignment.executor_id for event in run.history.of("task_assigned")
    }
    scheduled = {
        event.task_scheduled.assignment.executor_id for event in run.history.of("task_scheduled")
    }
    assert {"first", "second"} <= assigned | scheduled


async def test_a_program_that_was_given_up_is_replayed_by_its_own_process(bench):
    """What does not fit into memory any more is begun again; the poll is given back, and comes with its history."""
    begun = []

    async def program_(ctx: StepContext):
        begun.append(ctx.run_id)
        await ctx.ask("go on?")
        return "end"

    async with working(bench, program_, max_held_programs=1):
        run = await bench.start(one_step())
        await run.question()
        # Another one takes its place.
        other = await bench.start(one_step())
        await other.question()
        await run.answer(reply(value=True))
        assert await run.result() == "end"
    assert begun.count(run.run_id) == 2
    polls = [task for task in run.tasks if task.label == "step p"]
    assert [task.attempts for task in polls] == [1, 2]


async def test_a_replay_that_differs_fails_the_node_at_once(bench):
    """Not tried again, with the turn and both labels."""
    versions = iter([True, False])

    @bench.step("p")
    async def program(ctx: StepContext):
        if next(versions):
            await ctx.ask("go on?")
        return "end"

    run = await bench.start(one_step(retry=retry(max_tries=5)))
    await run.question()
    bench.executor._functions._programs._held.clear()
    await run.answer(reply(value=True))
    with pytest.raises(RunFailed, match="STEP_DIVERGED"):
        await run.result()
    assert run.failure.details["recorded"] == "suspend human"
    assert run.failure.details["replayed"] == "done"
    # One attempt was given back, one has failed.
    assert run.attempts("step p")[-1] == 2


async def test_failures_are_caught_or_are_the_nodes(bench):
    """By code; what nobody catches ends the node with the same code, and is not tried again."""
    bench.tools("t", lambda _: Failed("RATE_LIMITED", "slow down"))

    @bench.step("catches")
    async def catches(ctx: StepContext):
        try:
            await ctx.tool("t")
        except EffectFailed as error:
            return error.code

    @bench.step("fails")
    async def fails(ctx: StepContext):
        await ctx.tool("t")

    graph = Graph("g")
    graph.step("work", "catches")
    assert await (await bench.start(graph)).result() == "RATE_LIMITED"
    graph = Graph("h")
    graph.step("work", "fails")
    run = await (await bench.start(graph)).finished()
    assert run.failure.code == "RATE_LIMITED"
    assert run.attempts("step fails") == [1, 1]


async def test_a_fault_of_a_program_is_tried_again_from_its_history(bench):
    """A crash in the third turn repeats none of the first two."""
    calls_of_tool = bench.tools("t", lambda _: "x")
    crashes = iter([True, False])

    @bench.step("p")
    async def program(ctx: StepContext):
        await ctx.tool("t")
        await ctx.tool("t")
        if next(crashes):
            message = "a bug"
            raise ValueError(message)
        return "end"

    run = await bench.start(one_step(retry=retry(max_tries=2, first_delay="1h", jitter=0)))
    assert await run.result() == "end"
    assert len(calls_of_tool.asked) == 2


async def test_the_first_of_a_race_wins_and_the_rest_is_cancelled(bench):
    """Taken as they end; what is left when the program ends is cancelled."""
    bench.tools("fast", [later("1m", "fast")])
    bench.tools("slow", [later("1d", "slow")])

    @bench.step("p")
    async def program(ctx: StepContext):
        async for ended in ctx.each(ctx.tool("slow"), ctx.tool("fast")):
            first = ended.value
            break
        return first

    run = await bench.start(one_step())
    assert await run.result() == "fast"
    outcomes = {task.label: task.outcome for task in run.tasks}
    assert outcomes["tool slow"] == "cancelled"


async def test_a_program_goes_to_another_node_with_a_value(bench):
    """The carry is the input of what comes next; the state has what was written on the way."""

    @bench.step("triage")
    async def triage(ctx: StepContext):
        ctx.update(variables={"seen": True}, messages=["to billing"])
        ctx.goto("billing", {"invoice": 7})

    @bench.step("billing")
    def billing(ctx: StepContext):
        return done({"paid": ctx.input["invoice"], "seen": ctx.variables["seen"]})

    graph = Graph("g")
    graph.step("triage", "triage")
    graph.step("billing", "billing", variables=["seen"])
    graph.edge("triage", "billing", handoff=True)
    run = await bench.start(graph)
    assert await run.result() == {"paid": 7, "seen": True}
    assert run.path == ["triage", "billing"]
    assert len(run.messages) == 1


async def test_a_goto_without_an_edge_is_told_with_those_that_there_are(bench):
    """Nothing is tried again: the program would say the same."""

    @bench.step("p")
    def program(ctx: StepContext):
        return goto("nowhere")

    run = await (await bench.start(one_step())).finished()
    assert run.failure.code == "HANDOFF_MISSING"
    assert run.attempts("work") == [1]


async def test_people_and_other_systems_answer_programs(bench):
    """With a schema, by a token, with a failure, and not in time."""

    @bench.step("p")
    async def program(ctx: StepContext):
        sure = await ctx.ask("Sure?", {"type": "boolean"})
        paid = await ctx.external("order-7")
        try:
            await ctx.ask("And now?")
        except EffectFailed as error:
            code = error.code
        late = await ctx.ask("Anybody?", timeout="1d", default_answer="nobody")
        return [sure, paid, code, late]

    run = await bench.start(one_step())
    await run.answer(reply(value=True))
    asked = await run.question()
    assert asked.reason.external.token == "order-7"
    await bench.client.answer_external("order-7", reply({"paid": 5}))
    await run.question()
    await run.answer(failed("NO_TIME", "later"))
    assert await run.result() == [True, {"paid": 5}, "NO_TIME", "nobody"]
    answers = [event.interrupt_answered.answer for event in run.history.of("interrupt_answered")]
    assert isinstance(answers[0], interrupt_pb2.InterruptAnswer)


async def test_spawned_work_comes_back_in_order_with_its_failures(bench):
    """Programs and nodes of the graph, a few at once; what fails stands in its place, or the first that ends wins."""
    bench.tools("double", lambda arguments: 2 * arguments["n"])

    @bench.step("worker")
    async def worker(ctx: StepContext):
        if ctx.input == 2:
            code = "BAD_LUCK"
            raise Failed(code, "no")
        return await ctx.tool("double", n=ctx.input)

    @bench.step("p")
    async def program_(ctx: StepContext):
        work = [program("worker", n, label=f"n{n}") for n in range(4)]
        settled = await ctx.spawn(work, join="all_settled", max_concurrency=2)
        values = [each.code if isinstance(each, EffectFailed) else each for each in settled]
        all_of_them = await ctx.spawn([node("double", {"n": 5}), node("double", {"n": 6})])
        first = await ctx.spawn([program("worker", 7)], join="first")
        return [*values, *all_of_them, first]

    graph = one_step()
    graph.tool("double", "double", {"n": "{{item.n}}"})
    run = await bench.start(graph)
    assert await run.result() == [0, 2, "BAD_LUCK", 6, 10, 12, 14]


async def test_an_agent_is_a_loop_in_ordinary_code(bench):
    """A model, its tools, and the conversation that the program keeps in the state of the run."""
    model = bench.model("m", replies=[calls(call("add", a=1, b=2), call("add", a=3)), "7 in all"])

    @bench.tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @bench.step("p")
    async def agent(ctx: StepContext):
        ctx.update(messages=[str(ctx.input)])
        while True:
            said = await ctx.llm(include_conversation=True, tools=[add])
            ctx.update(messages=[said.message])
            if not said.calls:
                return said.text
            wanted = [ctx.tool(each.name, each.args) for each in said.calls]
            ctx.update(messages=[said.answered(await ctx.settled(*wanted))])

    run = await bench.start(one_step(), input="How many?")
    assert await run.result() == "7 in all"
    shown = [block for message in model.asked[1].messages for block in message.content]
    first, second = (block.tool_result for block in shown if block.HasField("tool_result"))
    assert first.content[0].text.text == "3"
    assert second.is_error
    assert "bad arguments: b" in second.content[0].text.text
    assert len(run.messages) == 4


async def test_a_program_outlives_the_server(tmp_path):
    """Server and executor are others after a restart; what was done is in the journal, and is told again."""
    asked = []

    async def patient(ctx: StepContext):
        first = await ctx.tool("t", n=1)
        sure = await ctx.ask("go on?")
        await ctx.sleep("30d")
        return [first, sure, await ctx.tool("t", n=2)]

    def open_bench():
        return Workbench(data=tmp_path / "runs.db")

    def declare(bench):
        asked.append(bench.tools("t", lambda arguments: arguments["n"]).asked)
        bench.step("p")(patient)

    async with open_bench() as bench:
        declare(bench)
        run = await bench.start(one_step())
        await run.question()
    async with open_bench() as bench:
        declare(bench)
        again = await bench.run(run.run_id)
        await again.answer(reply(value="yes"))
        await again.reached(lambda so_far: any("sleep" in line for line in so_far.waits_for()))
    async with open_bench() as bench:
        declare(bench)
        again = await bench.run(run.run_id)
        assert await again.result() == [1, "yes", 2]
    assert [len(each) for each in asked] == [1, 0, 1]


async def test_a_graph_is_an_effect_like_others(bench):
    """By reference or inline; its failure is caught by its code, as that of a tool."""
    bench.tools("double", lambda arguments: 2 * arguments["n"])
    child = Graph("child")
    child.tool("double", "double", {"n": "{{input}}"})
    failing = Graph("failing")
    failing.tool("lost", "nobody", {}, limits=limits(queue="1s"))
    await bench.client.register_graph(child)

    @bench.step("p")
    async def program_(ctx: StepContext):
        both = await ctx.all(ctx.graph("child", 1), ctx.graph(child, 2))
        try:
            await ctx.graph(failing)
        except EffectFailed as error:
            return [*both, error.code]

    run = await bench.start(one_step())
    assert await run.result() == [2, 4, "QUEUE_LIMIT"]
    assert [task.child_run_id != "" for task in run.tasks if task.label.startswith("graph")] == [
        True,
        True,
        True,
    ]


async def test_signals_reach_programs_early_and_late(bench):
    """One that came before it was waited for is there at once; several are one value."""

    @bench.step("p")
    async def program_(ctx: StepContext):
        await ctx.ask("ready?")
        early = await ctx.signal("early")
        several = await ctx.signal("late", count=2)
        return [early, several, await ctx.signal("never", timeout="1d", default_answer="nothing")]

    run = await bench.start(one_step())
    await run.question()
    await run.signal("early", 1)
    await run.answer(reply(value=True))
    await run.reached(lambda so_far: any("'late'" in line for line in so_far.waits_for()))
    await run.signal("late", "a")
    await run.signal("late", "b")
    assert await run.result() == [1, ["a", "b"], "nothing"]


async def test_many_programs_go_on_at_once(bench):
    """A hundred runs with twenty turns each, of all three kinds."""
    bench.tools("t", lambda arguments: arguments["n"] + 1)

    @bench.step("a")
    async def coroutine(ctx: StepContext):
        n = 0
        for _ in range(20):
            n = await ctx.tool("t", n=n)
        return n

    @bench.step("b")
    def generator(ctx: StepContext):
        n = 0
        for _ in range(20):
            n = yield ctx.tool("t", n=n)
        return n

    @bench.step("c")
    def function(ctx: StepContext):
        n = outcome(ctx.results[0]) if ctx.results else 0
        return done(n) if ctx.turn == 20 else ctx.tool("t", n=n)

    graphs = []
    for name in "abc":
        graph = Graph(name)
        graph.step("work", name)
        graphs.append(graph)
    runs = [await bench.start(graphs[index % 3]) for index in range(30)]
    assert [await run.result() for run in runs] == [20] * 30


async def test_a_retry_tries_the_effect_again_that_failed_the_program(bench):
    """Not only the program, which would be told the same; what else had ended is not done again."""
    fine = bench.tools("fine", ["fine"])
    down = bench.tools("down", [Failed("DOWN", "no"), "up"])

    async def call(ctx: StepContext) -> object:
        return await ctx.all(ctx.tool("fine"), ctx.tool("down"))

    async with working(bench, call):
        run = await (await bench.start(one_step())).finished()
        assert run.failure is not None
        assert run.failure.code == "DOWN"
        again = await bench.client.retry(run.run_id)
        assert await (await bench.run(again.run_id)).result() == ["fine", "up"]
    assert (len(fine.asked), len(down.asked)) == (1, 2)
