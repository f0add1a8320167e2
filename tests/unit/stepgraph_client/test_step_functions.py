"""Polls on their way to a program, and answers on their way back."""

from __future__ import annotations

import threading

import pytest

from stepgraph_client import Failed, StepContext, done
from stepgraph_client.task_errors import TurnsNotHeld
from tests.support.step_turns import StepPolls, tool_gave


async def test_what_a_program_raises_is_the_polls_failure_and_it_is_begun_again():
    """Nothing of a program that has failed is kept; the next attempt is told all turns."""
    begun = []

    async def call(ctx: StepContext):
        begun.append(1)
        await ctx.tool("t")
        if len(begun) == 1:
            message = "once"
            raise ValueError(message)
        return "fine"

    polls = StepPolls(call)
    await polls.poll()
    with pytest.raises(ValueError, match="once"):
        await polls.poll(tool_gave(0, 0, 1))
    with pytest.raises(TurnsNotHeld):
        await polls.poll(tool_gave(0, 0, 1))
    polls.forget()
    ended = await polls.poll(tool_gave(0, 0, 1))
    assert ended.done.value.text == "fine"
    assert len(begun) == 2


@pytest.mark.parametrize("error", [Failed("NO", "no"), ValueError("x")])
async def test_errors_of_functions_and_generators_come_out_as_they_are(error):
    """Whatever thread they were raised in."""

    def function(ctx: StepContext):
        raise error

    def generator(ctx: StepContext):
        yield ctx.tool("t")
        raise error

    with pytest.raises(type(error)):
        await StepPolls(function).poll()
    polls = StepPolls(generator)
    await polls.poll()
    with pytest.raises(type(error)):
        await polls.poll(tool_gave(0, 0, 1))


async def test_what_goes_on_is_held_and_an_end_is_not():
    """A program that has ended leaves nothing behind."""

    async def call(ctx: StepContext):
        await ctx.tool("t")

    polls = StepPolls(call)
    programs = polls.functions._programs
    await polls.poll()
    assert len(programs) == 1
    await polls.poll(tool_gave(0, 0, 1))
    assert len(programs) == 0


def test_async_programs_run_on_the_loop_and_others_in_threads():
    """The worker goes by what `bind` says."""
    from stepgraph_client._functions import Functions  # noqa: PLC0415

    async def awaits(ctx: StepContext):
        return threading.get_ident()

    def answers(ctx: StepContext):
        return done()

    functions = Functions()
    functions.add_step("a", awaits)
    functions.add_step("b", answers)
    kinds = {name: functions._exact["step", name].is_async for name in "ab"}
    assert kinds == {"a": True, "b": False}
