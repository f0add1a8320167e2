"""Scenarios of cancelling, over the wire: it reaches everything below a run, at any depth, and nothing starts after it."""

from __future__ import annotations

import asyncio

import pytest

from stepgraph.v1.run_pb2 import RunStatus
from stepgraph_client import Graph, StepContext, TaskContext, error_occurred
from stepgraph_client.transitions import program
from tests.support.e2e_house import happened, history, house_with_server, kinds

CANCELLED = RunStatus.RUN_STATUS_CANCELLED
COMPLETED = RunStatus.RUN_STATUS_COMPLETED
#: What a cancel may take in all: an executor that listens, and some time for a busy machine.
BOUND_S = 5.0


@pytest.fixture
async def house():
    async with house_with_server() as (house, _):
        yield house


@pytest.fixture
async def client(house):
    return await house.client()


async def hanging(house):
    """Host a tool that works until it is told to stop, one that must never be called, and programs that spawn each other."""
    executor = house.executor("e1")

    @executor.tool()
    async def hang(ctx: TaskContext) -> str:
        await house.ledger.note("hang")
        try:
            await asyncio.Event().wait()
        finally:
            await house.ledger.note(f"stopped: {ctx.cancel_reason}")
        return ""

    @executor.tool()
    async def after() -> str:
        await house.ledger.note("after")
        return ""

    @executor.step("outer")
    async def outer(ctx: StepContext) -> object:
        return await ctx.spawn([program("inner", number) for number in range(2)])

    @executor.step("inner")
    async def inner(ctx: StepContext) -> object:
        return await ctx.spawn([program("innermost", number) for number in range(2)])

    @executor.step("innermost")
    async def innermost(ctx: StepContext) -> object:
        await ctx.tool("hang")
        return await ctx.tool("after")

    await house.work(executor)


def stopped(ledger):
    return sum(n for name, n in ledger.calls.items() if name.startswith("stopped: "))


def innermost():
    graph = Graph("innermost")
    graph.tool("work", "hang", {})
    graph.tool("next", "after", {})
    graph.edge("work", "next")
    return graph


def around(name, inner):
    graph = Graph(name)
    graph.subgraph("inner", inner)
    graph.tool("next", "after", {})
    graph.edge("inner", "next")
    return graph


async def below(client, run_id):
    """Return the ids of the runs below a run, from the outermost on."""
    found = []
    while True:
        events = await history(client, run_id)
        started = [e.child_started.run_id for e in events if e.HasField("child_started")]
        if not started:
            return found
        (run_id,) = started
        found.append(run_id)


async def test_a_cancel_reaches_what_was_spawned_at_any_depth_and_nothing_starts_after_it(
    house, client
):
    await hanging(house)
    graph = Graph("spawns")
    graph.step("outer", "outer")
    graph.tool("next", "after", {})
    graph.edge("outer", "next")

    run = await client.start_run(graph)
    await house.ledger.called("hang", 4)
    async with asyncio.timeout(BOUND_S):
        await run.cancel("enough")
        row = await run.wait()
    await house.ledger.until(lambda ledger: stopped(ledger) == 4)
    events = await history(client, run.run_id)

    assert row.status == CANCELLED
    stopping = kinds(events).index("run_stopping")
    assert "task_scheduled" not in kinds(events)[stopping:]
    cancelled = [e.task_cancelled for e in events if e.HasField("task_cancelled")]
    assert len({each.task_id for each in cancelled}) == len(cancelled) == 4
    assert all(each.acknowledged for each in cancelled)
    assert "after" not in house.ledger.calls
    assert not any(name == "stopped: " for name in house.ledger.calls), "each was told why"


async def test_a_cancel_reaches_runs_below_runs_and_ends_them_first(house, client):
    await hanging(house)
    graph = around("outer", around("middle", innermost()))

    run = await client.start_run(graph)
    await house.ledger.called("hang")
    async with asyncio.timeout(BOUND_S):
        await run.cancel("enough")
        row = await run.wait()
    children = await below(client, run.run_id)
    rows = [await client.get_run(child) for child in children]

    assert row.status == CANCELLED
    assert [child.status for child in rows] == [CANCELLED, CANCELLED]
    ends = [each.end_time.ToNanoseconds() for each in (row, *rows)]
    assert ends == sorted(ends, reverse=True), "whoever is below ends first"
    assert house.ledger.calls["hang"] == 1
    assert "after" not in house.ledger.calls


async def test_a_run_below_that_is_cancelled_alone_is_a_failure_that_is_not_retried_and_can_be_routed(
    house, client
):
    await hanging(house)
    graph = around("outer", around("middle", innermost()))
    graph.assign("noticed", {"code": "last_error.code"})
    graph.edge("inner", "noticed", when=error_occurred("CANCELLED"))

    run = await client.start_run(graph)
    await house.ledger.called("hang")
    children = await below(client, run.run_id)
    await client.cancel(children[-1], "this one only")
    async with asyncio.timeout(BOUND_S):
        row = await run.wait()

    assert row.status == COMPLETED
    assert (await run.state()).variables["code"] == "CANCELLED"
    assert house.ledger.calls["hang"] == 1, "it was not tried again"
    assert "after" not in house.ledger.calls
    await happened(client, children[-1], "run_cancelled")
