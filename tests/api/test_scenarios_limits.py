"""Scenarios of time limits, over the wire: each meaning of "too long" has a limit and a code of its own, and none is hidden.

Limits over long times and over restarts stand in tests/scenarios, where time passes at once.
"""

from __future__ import annotations

import asyncio

import pytest

from stepgraph.v1.run_pb2 import RunStatus
from stepgraph_client import Graph, TaskContext, error_occurred, limits, retry
from tests.support.e2e_house import history, house_with_server

COMPLETED = RunStatus.RUN_STATUS_COMPLETED
FAILED = RunStatus.RUN_STATUS_FAILED

TWICE = retry(max_tries=2, first_delay="1ms", jitter=0.0)


@pytest.fixture
async def house():
    async with house_with_server() as (house, _):
        yield house


@pytest.fixture
async def client(house):
    return await house.client()


async def streaming(house):
    """Host a model that shows a word each 50 ms, 20 in all; one that shows nothing; and a tool that never ends."""
    executor = house.executor("e1")

    @executor.model("talker")
    async def talker(_: object, ctx: TaskContext) -> str:
        await house.ledger.note("talker")
        for number in range(20):
            ctx.text_delta(f"{number} ")
            await asyncio.sleep(0.05)
        return "done"

    @executor.model("mute")
    async def mute(_: object, ctx: TaskContext) -> str:
        await house.ledger.note("mute")
        await never(house, ctx)
        return ""

    @executor.tool()
    async def hang(ctx: TaskContext) -> str:
        await house.ledger.note("hang")
        await never(house, ctx)
        return ""

    await house.work(executor)


async def never(house, ctx: TaskContext) -> None:
    """Wait for the end of the attempt, and note why it ended."""
    try:
        await asyncio.Event().wait()
    finally:
        await house.ledger.note(f"stopped: {ctx.cancel_reason}")


def asking(model, **fields):
    graph = Graph("asks", default_model=model)
    graph.llm("ask", streaming=True, **fields)
    return graph


async def test_a_stream_that_is_alive_outlives_its_idle_limit(house, client):
    await streaming(house)

    run = await client.start_run(asking("talker", limits=limits(idle="500ms", run="20s")))
    row = await run.wait()

    assert row.status == COMPLETED
    assert house.ledger.calls["talker"] == 1, "a second of talk, in one attempt"


async def test_a_stream_that_is_silent_is_given_up_by_its_idle_limit(house, client):
    await streaming(house)

    fields = {"limits": limits(idle="150ms", run="20s"), "retry": TWICE}
    run = await client.start_run(asking("mute", **fields))
    row = await run.wait()

    assert (row.status, row.failure.code) == (FAILED, "IDLE_LIMIT")
    assert house.ledger.calls["mute"] == 2, "a limit of an attempt is retried as the policy says"
    await house.ledger.called("stopped: IDLE_LIMIT", 2)


async def test_an_attempt_that_is_alive_ends_by_its_own_limit(house, client):
    await streaming(house)

    fields = {"limits": limits(idle="20s", run="200ms"), "retry": TWICE}
    run = await client.start_run(asking("talker", **fields))
    row = await run.wait()

    assert (row.status, row.failure.code) == (FAILED, "RUN_LIMIT")
    assert house.ledger.calls["talker"] == 2


async def test_the_whole_of_a_task_has_a_limit_that_tries_do_not_begin_anew(house, client):
    await streaming(house)

    fields = {
        "limits": limits(run="150ms", total="1s"),
        "retry": retry(max_tries=100, first_delay="1ms", factor=1.0),
    }
    run = await client.start_run(asking("mute", **fields))
    row = await run.wait()

    assert (row.status, row.failure.code) == (FAILED, "TOTAL_LIMIT")
    assert 2 <= house.ledger.calls["mute"] <= 7


async def test_a_task_that_nobody_takes_says_who_was_wanted(house, client):
    run = await client.start_run(asking("absent", limits=limits(queue="100ms")))
    row = await run.wait()

    assert (row.status, row.failure.code) == (FAILED, "QUEUE_LIMIT")
    assert "absent" in str(row.failure)
    events = await history(client, run.run_id)
    assert any(event.HasField("task_unclaimed") for event in events), "it was said before"


async def test_what_handles_an_error_obeys_its_limits_too(house, client):
    await streaming(house)
    graph = Graph("handled")
    graph.tool("work", "hang", {}, limits=limits(run="100ms"), retry=retry(max_tries=1))
    graph.tool("handle", "hang", {}, limits=limits(run="100ms"), retry=TWICE)
    graph.edge("work", "handle", when=error_occurred("RUN_LIMIT"))

    run = await client.start_run(graph)
    row = await run.wait()

    assert (row.status, row.failure.code) == (FAILED, "RUN_LIMIT")
    assert "handle" in row.failure.source
    assert house.ledger.calls["hang"] == 1 + 2
    await house.ledger.called("stopped: RUN_LIMIT", 3)


async def test_what_has_limits_of_neither_kind_is_not_given_up_while_others_are(house, client):
    await streaming(house)
    graph = Graph("patient")
    graph.assign("start")
    graph.tool("hopeless", "hang", {}, limits=limits(run="50ms"), retry=TWICE)
    graph.llm(
        "patient", model="talker", streaming=True, append=False, limits=limits(run="0s", idle="0s")
    )
    graph.assign("gone_on")
    graph.edge("start", "hopeless")
    graph.edge("start", "patient")
    graph.edge("hopeless", "gone_on", when=error_occurred())

    run = await client.start_run(graph)
    row = await run.wait()

    assert row.status == COMPLETED
    assert house.ledger.calls["talker"] == 1
