"""Three ways to write a step program, and what happens when the process that holds it is another one."""

from __future__ import annotations

import asyncio

import pytest

from stepgraph.v1 import transition_pb2
from stepgraph_client import EffectFailed, StepContext, done, goto, program
from stepgraph_client.effects import await_effects, outcome, tool
from stepgraph_client.step_programs import (
    CoroutineProgram,
    FunctionProgram,
    GeneratorProgram,
    kind_of,
)
from stepgraph_client.task_errors import Failed
from stepgraph_client.values import from_value
from tests.support.step_turns import StepPolls, answered, failed, node_gave, slept, tool_gave


def names(transition: transition_pb2.Transition) -> list[str]:
    return [
        effect.tool.name or effect.WhichOneof("kind") for effect in transition.await_effects.effects
    ]


def value(transition: transition_pb2.Transition) -> object:
    assert transition.HasField("done"), transition
    return from_value(transition.done.value)


# ---- one program, written three times --------------------------------------------------------


async def as_coroutine(ctx: StepContext):
    first = await ctx.tool("search", query=ctx.input)
    second, third = await ctx.all(ctx.tool("read", path=first), ctx.tool("rate", path=first))
    return f"{second} {third}"


def as_generator(ctx: StepContext):
    first = yield ctx.tool("search", query=ctx.input)
    second, third = yield ctx.all(ctx.tool("read", path=first), ctx.tool("rate", path=first))
    return f"{second} {third}"


def as_bare_generator(ctx: StepContext):
    (first,) = yield await_effects(tool("search", query=ctx.input)).transition
    path = outcome(first)
    results = yield await_effects(tool("read", path=path), tool("rate", path=path)).transition
    return done(" ".join(str(outcome(each)) for each in results))


def as_function(ctx: StepContext):
    match ctx.turn:
        case 0:
            return ctx.tool("search", query=ctx.input)
        case 1:
            path = outcome(ctx.results[0])
            return ctx.all(ctx.tool("read", path=path), ctx.tool("rate", path=path))
        case _:
            return done(" ".join(str(outcome(each)) for each in ctx.results))


EVERY_WAY = pytest.mark.parametrize(
    "call", [as_coroutine, as_generator, as_bare_generator, as_function]
)


@EVERY_WAY
@pytest.mark.parametrize("moved_before", [(), (1,), (2,), (1, 2)], ids=str)
async def test_all_ways_ask_for_the_same_wherever_they_run(call, moved_before):
    """The same effects are asked for and the same end is reached, whoever answers which turn."""
    polls = StepPolls(call, given="q")
    results = [(), (tool_gave(0, 0, "a.txt"),), (tool_gave(1, 0, "text"), tool_gave(1, 1, 5))]
    asked = []
    for turn, told in enumerate(results):
        if turn in moved_before:
            polls.move()
        asked.append(await polls.poll(*told))
    assert names(asked[0]) == ["search"]
    assert asked[0].await_effects.effects[0].tool.args == '{"query":"q"}'
    assert names(asked[1]) == ["read", "rate"]
    assert value(asked[2]) == "text 5"


@EVERY_WAY
async def test_turns_are_held_until_the_end(call):
    """All but the last reply say that the process keeps the turns."""
    polls = StepPolls(call, given="q")
    results = [(), (tool_gave(0, 0, "a"),), (tool_gave(1, 0, "b"), tool_gave(1, 1, "c"))]
    replies = [await polls.reply(*told) for told in results]
    assert [reply.holds_turns for reply in replies] == [True, True, False]


def test_functions_are_told_apart():
    """What a program is, is seen at its declaration."""

    async def both(ctx):
        yield ctx

    assert kind_of(as_coroutine) is CoroutineProgram
    assert kind_of(as_generator) is GeneratorProgram
    assert kind_of(as_function) is FunctionProgram
    with pytest.raises(TypeError, match="async generator"):
        kind_of(both)


async def test_a_function_sees_all_turns_before():
    """The history is there, whether it was sent or held."""
    seen = []

    def call(ctx: StepContext):
        seen.append([outcome(each) for turn in ctx.history for each in turn.results])
        return ctx.tool("t") if ctx.turn < 3 else done(len(ctx.history))

    polls = StepPolls(call)
    await polls.poll()
    await polls.poll(tool_gave(0, 0, "a"))
    polls.move()
    await polls.poll(tool_gave(1, 0, "b"))
    assert value(await polls.poll(tool_gave(2, 0, "c"))) == 3
    assert seen == [[], [], ["a"], ["a", "b"]]


# ---- failures --------------------------------------------------------------------------------


async def test_a_failure_is_raised_where_it_is_awaited():
    """A program catches what failed, by its code, and goes on."""

    async def call(ctx: StepContext):
        try:
            await ctx.tool("t")
        except EffectFailed as error:
            return [error.code, error.label, error.failure.message]

    polls = StepPolls(call)
    await polls.poll()
    assert value(await polls.poll(failed(0, 0))) == ["BROKEN", "tool t", "no"]


async def test_a_generator_catches_failures_too():
    """A failure is thrown in where the effect was yielded."""

    def call(ctx: StepContext):
        try:
            yield ctx.tool("t")
        except EffectFailed as error:
            said = yield ctx.tool("again", why=error.code)
            return said

    polls = StepPolls(call)
    await polls.poll()
    assert names(await polls.poll(failed(0, 0))) == ["again"]
    assert value(await polls.poll(tool_gave(1, 0, "ok"))) == "ok"


async def test_a_tool_that_reports_an_error_raises_too():
    """What a tool says of its trouble is not taken for its output."""

    async def call(ctx: StepContext):
        try:
            return await ctx.tool("t")
        except EffectFailed as error:
            return [error.code, error.failure.message]

    polls = StepPolls(call)
    await polls.poll()
    assert value(await polls.poll(tool_gave(0, 0, "no such file", is_error=True))) == [
        "TOOL_ERROR",
        "no such file",
    ]


@pytest.mark.parametrize(
    "call", [as_coroutine, as_generator, as_function], ids=["async", "generator", "function"]
)
async def test_a_failure_that_nobody_catches_is_the_programs(call):
    """The node fails with the same code, and the poll is not tried again."""
    polls = StepPolls(call, given="q")
    await polls.poll()
    with pytest.raises(Failed) as caught:
        await polls.poll(failed(0, 0, "RATE_LIMITED", "slow down"))
    assert caught.value.code == "RATE_LIMITED"
    assert caught.value.retryable is False
    assert caught.value.details == {"effect": "tool t", "turn": "1"}


async def test_settled_gives_failures_as_values():
    """What failed stands in its place, and nothing is raised."""

    async def call(ctx: StepContext):
        good, bad = await ctx.settled(ctx.tool("a"), ctx.tool("b"))
        assert isinstance(bad, EffectFailed)
        return [good, bad.code]

    polls = StepPolls(call)
    await polls.poll()
    assert value(await polls.poll(tool_gave(0, 0, "x"), failed(0, 1))) == ["x", "BROKEN"]


# ---- as they end -----------------------------------------------------------------------------


async def race(ctx: StepContext):
    seen = []
    async for ended in ctx.each(ctx.tool("a"), ctx.tool("b"), ctx.tool("c")):
        seen.append([ended.index, ended.value])
        if len(seen) == 2:
            break
    seen.append(await ctx.tool("d"))
    return seen


@pytest.mark.parametrize("moves", [False, True])
async def test_effects_are_taken_as_they_end(moves):
    """Each wake gives what has ended; what was left goes on and does not hold up what is awaited after it."""
    polls = StepPolls(race)

    async def poll(*results):
        if moves:
            polls.move()
        return await polls.poll(*results)

    first = await poll()
    assert names(first) == ["a", "b", "c"]
    assert first.await_effects.wake == transition_pb2.WAKE_POLICY_EACH
    second = await poll(tool_gave(0, 1, "b!"))
    assert names(second) == []
    assert second.await_effects.wake == transition_pb2.WAKE_POLICY_EACH
    third = await poll(tool_gave(0, 2, "c!"))
    assert names(third) == ["d"]
    assert third.await_effects.wake == transition_pb2.WAKE_POLICY_EACH
    # Nothing that it waits for: it waits on by itself.
    assert names(await poll(tool_gave(0, 0, "a!"))) == []
    assert value(await poll(tool_gave(2, 0, "d!"))) == [[1, "b!"], [2, "c!"], "d!"]


async def test_several_that_end_at_once_take_one_turn():
    """What one wake brings is given item by item, without asking again in between."""

    async def call(ctx: StepContext):
        return [ended.value async for ended in ctx.each(ctx.tool("a"), ctx.tool("b"))]

    polls = StepPolls(call)
    await polls.poll()
    assert value(await polls.poll(tool_gave(0, 0, 1), tool_gave(0, 1, 2))) == [1, 2]


async def test_what_has_ended_meanwhile_is_there_at_once():
    """Work awaited inside of the loop may bring what the loop waits for: that takes no turn."""

    async def call(ctx: StepContext):
        seen = []
        async for ended in ctx.each(ctx.tool("a"), ctx.tool("b")):
            seen.append(ended.value)
            if len(seen) == 1:
                seen.append(await ctx.tool("c"))
        return seen

    polls = StepPolls(call)
    await polls.poll()
    assert names(await polls.poll(tool_gave(0, 0, "a"))) == ["c"]
    assert names(await polls.poll(tool_gave(0, 1, "b"))) == []
    assert value(await polls.poll(tool_gave(1, 0, "c"))) == ["a", "c", "b"]


async def test_nothing_takes_no_turn():
    """Waiting for no effect and spawning no work give empty lists at once; a server would refuse both."""

    async def call(ctx: StepContext):
        each = [ended async for ended in ctx.each()]
        return [await ctx.all(), await ctx.settled(), await ctx.spawn([]), each]

    def generator(ctx: StepContext):
        none = yield ctx.all()
        spawned = yield ctx.spawn([])
        return [none, spawned]

    assert value(await StepPolls(call).poll()) == [[], [], [], []]
    assert value(await StepPolls(generator).poll()) == [[], []]


# ---- the other transitions -------------------------------------------------------------------


async def test_spawned_work_comes_back_in_order():
    """A spawn is one turn, whatever it spawns."""

    async def call(ctx: StepContext):
        return await ctx.spawn([program("sum", each) for each in ctx.input], max_concurrency=2)

    polls = StepPolls(call, given=["a", "b"])
    spawn = (await polls.poll()).spawn
    assert [spec.body.program for spec in spawn.specs] == ["sum", "sum"]
    assert spawn.max_concurrency == 2
    assert value(await polls.poll(node_gave(0, 0, "A"), node_gave(0, 1, "B"))) == ["A", "B"]


@pytest.mark.parametrize("moves", [False, True])
async def test_a_question_waits_and_sleeps_come_after(moves):
    """Suspends and sleeps are awaited like everything else."""

    async def call(ctx: StepContext):
        sure = await ctx.ask("Sure?", {"type": "boolean"})
        await ctx.sleep("1h")
        return [sure, await ctx.signal("go", count=2)]

    polls = StepPolls(call)

    async def poll(*results):
        if moves:
            polls.move()
        return await polls.poll(*results)

    asked = (await poll()).suspend
    assert (asked.reason.human.prompt, asked.reason.human.json_schema) == (
        "Sure?",
        '{"type": "boolean"}',
    )
    slept_for = (await poll(answered(0, True))).await_effects.effects[0].sleep.duration
    assert slept_for.seconds == 3600
    assert (await poll(slept(1, 0))).suspend.reason.signal.count == 2
    assert value(await poll(answered(2, "a", "b"))) == [True, ["a", "b"]]


async def goes_in_async(ctx: StepContext):
    try:
        ctx.goto("billing", {"id": 7})
    except Exception:  # noqa: BLE001
        return "swallowed"


def goes_in_a_generator(ctx: StepContext):
    yield from ()
    return goto("billing", {"id": 7})


def goes_in_a_function(ctx: StepContext):
    ctx.goto("billing", {"id": 7})


@pytest.mark.parametrize("call", [goes_in_async, goes_in_a_generator, goes_in_a_function])
async def test_a_program_goes_to_another_node(call):
    """A goto ends the program with its carry, and no `except Exception` stands in its way."""
    goes = (await StepPolls(call).poll()).goto
    assert goes.target == "billing"
    assert from_value(goes.carry) == {"id": 7}


async def test_updates_go_with_the_turn_that_makes_them():
    """Each reply has the updates since the one before, as one; a replay makes them again for nobody."""

    async def call(ctx: StepContext):
        ctx.update(variables={"a": 1})
        ctx.update(variables={"b": 2}, messages=["hello"])
        await ctx.tool("t")
        ctx.update(delete_variables=["a"])
        return

    polls = StepPolls(call)
    first = await polls.reply()
    assert {name: from_value(each) for name, each in first.update.variables.items()} == {
        "a": 1,
        "b": 2,
    }
    assert len(first.update.messages) == 1
    polls.move()
    second = await polls.reply(tool_gave(0, 0, "x"))
    assert list(second.update.delete_variables) == ["a"]
    assert not second.update.variables


# ---- replays ---------------------------------------------------------------------------------


async def test_a_replay_that_asks_for_something_else_is_an_error():
    """A new version that differs fails at once, with the turn and both labels, and is not tried again."""

    async def old(ctx: StepContext):
        await ctx.tool("search")
        await ctx.all(ctx.tool("read"), ctx.sleep("1s"))
        return "old"

    async def new(ctx: StepContext):
        await ctx.tool("search")
        await ctx.tool("read")
        return "new"

    polls = StepPolls(old)
    await polls.poll()
    await polls.poll(tool_gave(0, 0, "a"))
    polls.move(new)
    with pytest.raises(Failed) as caught:
        await polls.poll(tool_gave(1, 0, "b"), slept(1, 1))
    error = caught.value
    assert error.code == "STEP_DIVERGED"
    assert error.retryable is False
    assert error.details == {
        "turn": "1",
        "recorded": "await tool read, sleep",
        "replayed": "await tool read",
    }
    assert "turn 1" in error.message


async def test_a_replay_may_say_it_differently():
    """Prompts and arguments may change: what was recorded counts, and results are not asked for again."""
    polls = StepPolls(as_coroutine, given="q")
    await polls.poll()

    async def other_words(ctx: StepContext):
        return await ctx.tool("search", query="other words")

    polls.move(other_words)
    assert value(await polls.poll(tool_gave(0, 0, "a"))) == "a"


async def test_what_was_read_can_not_be_written_before_the_last_turn():
    """A replay would read its own write; so this fails in the first run already, and not after the first restart."""

    async def call(ctx: StepContext):
        count = ctx.variables["count"]
        ctx.update(variables={"count": count + 1})
        await ctx.tool("t")

    with pytest.raises(Failed, match="turn 0 changes count") as caught:
        await StepPolls(call, variables={"count": 1}).poll()
    assert caught.value.code == "STEP_NOT_REPLAYABLE"


async def test_what_was_read_can_be_written_with_the_last_turn():
    """After the last turn nothing is replayed."""

    async def call(ctx: StepContext):
        ctx.update(variables={"count": ctx.variables["count"] + 1})

    reply = await StepPolls(call, variables={"count": 1}).reply()
    assert from_value(reply.update.variables["count"]) == 2


# ---- what programs may not do ----------------------------------------------------------------


async def test_tasks_of_asyncio_do_not_await_effects():
    """gather would hide effects from the program's turns; the error says what to write."""

    async def call(ctx: StepContext):
        await asyncio.gather(ctx.tool("a"), ctx.tool("b"))

    with pytest.raises(RuntimeError, match=r"ctx\.all\(a, b\)"):
        await StepPolls(call).poll()


async def test_a_program_may_await_other_things():
    """What is not ours goes to the event loop, and back."""

    async def call(ctx: StepContext):
        await asyncio.sleep(0)
        first = await ctx.tool("t")
        event = asyncio.Event()
        asyncio.get_running_loop().call_soon(event.set)
        await event.wait()
        return first

    polls = StepPolls(call)
    await polls.poll()
    polls.move()
    assert value(await polls.poll(tool_gave(0, 0, "x"))) == "x"


async def test_a_cancel_reaches_the_program_where_it_waits():
    """A cancelled attempt raises in the program, which may clean up."""
    seen = []

    async def call(ctx: StepContext):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async with asyncio.TaskGroup() as group:
        task = group.create_task(StepPolls(call).poll())
        await asyncio.sleep(0)
        task.cancel()
    assert seen == ["cancelled"]


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (lambda ctx: None, "returns a transition"),
        (lambda ctx: "text", "found str"),
    ],
)
async def test_a_function_must_return_a_transition(call, wanted):
    """A forgotten `return` must not end a node."""
    with pytest.raises(Failed, match=wanted) as caught:
        await StepPolls(call).poll()
    assert caught.value.code == "RESULT_INVALID"


async def test_a_program_must_await_what_it_wants():
    """An effect that is returned, or a yield of something else, is told with what to do."""

    async def returns_an_effect(ctx: StepContext):
        return ctx.tool("t")

    def yields_text(ctx: StepContext):
        yield "text"

    def yields_an_end(ctx: StepContext):
        yield done("x")

    with pytest.raises(Failed, match="await or yield this"):
        await StepPolls(returns_an_effect).poll()
    for call in (yields_text, yields_an_end):
        with pytest.raises(Failed, match="a generator yields what it asks for"):
            await StepPolls(call).poll()


async def test_what_is_given_up_ends_where_it_waits():
    """A program may clean up; one that was never begun has nothing to."""
    ended = []

    async def waits(ctx: StepContext):
        try:
            await ctx.tool("t")
        finally:
            ended.append("async")

    def yields(ctx: StepContext):
        try:
            yield ctx.tool("t")
        finally:
            ended.append("generator")

    def returns(ctx: StepContext):
        return ctx.tool("t")

    for call in (waits, yields, returns):
        kind_of(call)(call).close()
        polls = StepPolls(call)
        await polls.poll()
        (held,) = polls.functions._programs._held.values()
        held.program.close()
    assert ended == ["async", "generator"]
