"""A step program outlives its process and its server: killed between two turns, and nothing that had ended is done again."""

from __future__ import annotations

import pytest

from stepgraph.v1.run_pb2 import RunStatus
from stepgraph_client import Graph, TaskContext
from tests.support.e2e_house import history
from tests.support.e2e_processes import ExecutorProcess

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]

STEPS = ["a", "b", "c", "d"]


def walk():
    graph = Graph("walk")
    graph.step("walk", "walk")
    return graph


@pytest.fixture
async def hands(house):
    """An executor that does what the program asks for, at `b` only when it is let."""
    executor = house.executor("hands")

    @executor.tool()
    async def act(what: str, ctx: TaskContext) -> str:
        await house.ledger.note(what)
        await house.ledger.note(ctx.idempotency_key)
        if what == "b":
            await house.ledger.called("go on")
        return what.upper()

    await house.work(executor)


@pytest.mark.usefixtures("hands")
@pytest.mark.parametrize("settings", [("session.lost_grace=300ms",)])
async def test_a_killed_program_is_replayed_by_another_process(server, house, client):
    """The first process dies while a tool works for its program; the second is told what was done, and goes on."""
    async with ExecutorProcess(server.address, "first") as first:
        run = await client.start_run(walk(), input=STEPS)
        await first.line(f"begins {run.run_id}")
        await house.ledger.called("b")
        await first.kill()
        await house.ledger.note("go on")
        async with ExecutorProcess(server.address, "second") as second:
            await second.line(f"ends {run.run_id}")
            assert await run.result() == [each.upper() for each in STEPS]
            assert second.lines.count(f"begins {run.run_id}") == 1
    house.ledger.calls.pop("go on")
    assert set(house.ledger.calls.values()) == {1}, "no task was attempted twice"


@pytest.mark.usefixtures("hands")
async def test_a_program_whose_server_was_killed_goes_on_where_it_was(server, house, client):
    """Its process lives, so it is not even replayed."""
    async with ExecutorProcess(server.address, "only") as only:
        run = await client.start_run(walk(), input=STEPS)
        await house.ledger.called("b")
        await server.restart()
        await house.ledger.note("go on")
        assert (await run.wait()).status == RunStatus.RUN_STATUS_COMPLETED
        await only.line(f"ends {run.run_id}")
        assert only.lines.count(f"begins {run.run_id}") == 1
    events = await history(client, run.run_id)
    polls = [
        event.task_completed.task_id
        for event in events
        if event.HasField("task_completed") and event.task_completed.result.HasField("step")
    ]
    assert polls == [f"1/walk/t{turn}/poll" for turn in range(len(STEPS) + 1)]
