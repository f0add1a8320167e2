"""A run outlives its server: killed at the worst moments, started again, and nothing was done twice.

What was done is counted outside the server: by executors, in processes of their own or in the test's.
"""

from __future__ import annotations

import asyncio
import re

import pytest

from stepgraph.v1.run_pb2 import RunStatus
from stepgraph_client import Graph, TaskContext, proceed
from tests.support.e2e_house import happened, history, kinds
from tests.support.e2e_processes import ExecutorProcess, cli_output

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]

# A lost executor's work moves soon. Not with tests in which an executor comes back after its server.
SHORT_GRACE = pytest.mark.parametrize("settings", [("session.lost_grace=300ms",)])
COMPLETED = RunStatus.RUN_STATUS_COMPLETED


def release():
    """Build what is tested, then asked about, then done, then told."""
    graph = Graph("release")
    graph.tool("test", "act", {"what": "test"}, output="tested")
    graph.approval("ask", "Release it?")
    graph.tool("deploy", "act", {"what": "deploy"}, output="deployed")
    graph.tool("tell", "act", {"what": "tell"})
    graph.chain("test", "ask", "deploy", "tell")
    graph.end("tell")
    return graph


class Hands:
    """An executor that does things, and does `deploy` only when it is let."""

    def __init__(self, house):
        self.gate = asyncio.Event()
        self.executor = house.executor("hands")

        @self.executor.tool()
        async def act(what: str, ctx: TaskContext) -> str:
            await house.ledger.note(what)
            await house.ledger.note(ctx.idempotency_key)
            if what == "deploy":
                await self.gate.wait()
            return f"{what} done"


async def test_a_release_survives_two_kills_and_is_answered_from_the_command_line(
    server, house, client
):
    hands = Hands(house)
    await house.work(hands.executor)
    await client.register_graph(release())
    run = await client.start_run("release", run_id="r1")
    await happened(client, "r1", "interrupt_opened")

    await server.restart()  # while it waits for a person
    code, listed = await cli_output(server.address, "interrupts", "--run", "r1")
    assert code == 0, listed
    [question] = set(re.findall(r"\bq-[0-9a-f]+", listed))
    code, said = await cli_output(server.address, "answer", question, "--proceed", "--as", "Ada")
    assert code == 0, said
    await house.ledger.called("deploy")

    await server.restart()  # while a tool runs
    hands.gate.set()
    row = await run.wait()

    events = await history(client, "r1")
    assert row.status == COMPLETED, row.failure
    assert {name: house.ledger.calls[name] for name in ("test", "deploy", "tell")} == {
        "test": 1,
        "deploy": 1,
        "tell": 1,
    }
    assert set(house.ledger.calls.values()) == {1}, "no task was attempted twice"
    assert "task_lost" not in kinds(events)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    [answered] = [e.interrupt_answered for e in events if e.HasField("interrupt_answered")]
    assert answered.answered_by == "Ada"


async def test_a_question_is_answered_over_the_restart_and_again_is_harmless(server, house, client):
    graph = Graph("ask")
    graph.approval("ask", "Go on?")
    graph.end("ask")
    run = await client.start_run(graph)
    opened = await happened(client, run.run_id, "interrupt_opened")
    question = opened.interrupt_opened.question.interrupt_id
    first = await client.answer(question, proceed(), answered_by="Ada")

    await server.restart()

    again = await client.answer(question, proceed(), answered_by="Bob")
    assert (await run.wait()).status == COMPLETED
    assert again == first


async def test_a_result_that_ends_while_the_server_is_away_is_handed_over_when_it_is_back(
    server, house, client
):
    hands = Hands(house)
    await house.work(hands.executor)
    graph = Graph("deploy")
    graph.tool("deploy", "act", {"what": "deploy"}, output="deployed")
    graph.end("deploy")
    run = await client.start_run(graph)
    await house.ledger.called("deploy")

    await server.kill()
    hands.gate.set()
    await server.start()

    assert (await run.wait()).status == COMPLETED
    assert house.ledger.calls["deploy"] == 1


# ---- executors that are killed ---------------------------------------------------------------


@SHORT_GRACE
async def test_a_killed_executor_s_task_moves_to_another_one_within_the_grace(
    server, house, client
):
    graph = Graph("hold")
    graph.tool("hold", "hold", {}, output="by")
    graph.end("hold")
    async with ExecutorProcess(server.address, "first") as first:
        run = await client.start_run(graph)
        await first.line("holds")
        async with ExecutorProcess(server.address, "second") as second:
            await first.kill()
            async with asyncio.timeout(10):
                key = (await second.line("holds")).split()[1]

            events = await history(client, run.run_id)
            attempts = [
                assignment.executor_id
                for event in events
                for assignment in (event.task_scheduled.assignment, event.task_assigned.assignment)
                if assignment.attempt
            ]
            assert attempts == ["first", "second"]
            assert first.lines[-1].split()[1] == key, "both attempts have one key"
            assert kinds(events).count("task_lost") == 1
            assert "task_failed" not in kinds(events), "being killed is not a try"


@SHORT_GRACE
async def test_executor_and_server_are_killed_together_and_the_task_is_done_by_who_comes(
    server, house, client
):
    graph = Graph("both")
    graph.tool("hold", "hold", {})
    graph.end("hold")
    async with ExecutorProcess(server.address, "first") as first:
        run = await client.start_run(graph)
        await first.line("holds")
        await server.kill()
        await first.kill()
    await server.start()

    executor = house.executor("second")

    @executor.tool()
    async def hold() -> str:
        await house.ledger.note("hold")
        return "done"

    await house.work(executor)
    assert (await run.wait()).status == COMPLETED
    assert house.ledger.calls["hold"] == 1
