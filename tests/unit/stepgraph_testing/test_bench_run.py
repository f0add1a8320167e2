"""A run at the workbench: steered, and looked at."""

from __future__ import annotations

import pytest

from stepgraph_client import (
    Graph,
    RunCancelled,
    RunFailed,
    StepContext,
    abort,
    proceed,
    reply,
)
from stepgraph_testing import Workbench


@pytest.fixture
async def bench():
    async with Workbench() as bench:
        yield bench


def two_questions():
    graph = Graph("g")
    graph.assign("fork")
    graph.approval("left", "Left?")
    graph.approval("right", "Right?")
    graph.edge("fork", "left")
    graph.edge("fork", "right")
    return graph


async def test_questions_are_answered_by_their_nodes(bench):
    """In any order; the answer says who gave it."""
    run = await bench.start(two_questions())
    await run.question()
    assert {question.node_id for question in run.questions} == {"left", "right"}
    await run.answer(proceed(), node_id="right", answered_by="ann")
    assert [question.node_id for question in run.questions] == ["left"]
    await run.answer(proceed())
    assert await run.finished() is run
    answered = run.history.of("interrupt_answered")
    assert answered[0].interrupt_answered.answered_by == "ann"


async def test_ends_that_are_no_results_are_raised(bench):
    """With the client's own exceptions."""
    run = await bench.start(two_questions())
    await run.answer(abort("no"))
    with pytest.raises(RunCancelled):
        await run.result()
    graph = Graph("f")
    graph.assign("bad", {"x": "vars.missing"})
    with pytest.raises(RunFailed):
        await (await bench.start(graph)).result()


async def test_a_run_is_shown_with_its_story(bench):
    """In failures of assertions, too."""
    graph = Graph("g")
    graph.assign("only")
    run = await (await bench.start(graph)).finished()
    assert repr(run).startswith(f"<run {run.run_id}\npath: only")
    assert run.failure is None


async def test_it_stops_and_is_over(bench):
    """A cancel is waited for."""
    run = await bench.start(two_questions())
    await run.question()
    assert (await run.cancel("enough")).status == "cancelled"


async def test_a_program_asks_and_is_told(bench):
    """A suspended step is a question like others."""

    @bench.step("p")
    async def program(ctx: StepContext) -> object:
        return await ctx.external("token-1")

    graph = Graph("g")
    graph.step("wait", "p")
    run = await bench.start(graph)
    asked = await run.question()
    assert asked.reason.external.token == "token-1"
    await run.answer(reply({"paid": True}))
    assert await run.result() == {"paid": True}
