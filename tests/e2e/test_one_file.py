"""One data file under everything at once: many runs, watchers, a backup in a loop, kills; and never a second server.

The reference is what was acknowledged: starts that returned, and results that executors were told are kept.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import aclosing, closing

import pytest

from stepgraph.v1.run_pb2 import RunStatus
from stepgraph.v1.run_service_pb2 import WATCH_VIEW_SUMMARY
from stepgraph_client import Graph
from tests.support.e2e_house import history, house_at
from tests.support.e2e_processes import Process, ServerProcess

pytestmark = [pytest.mark.e2e]

COMPLETED = RunStatus.RUN_STATUS_COMPLETED
STEPS = 20


def long_walk():
    graph = Graph("walk")
    nodes = [graph.tool(f"n{n}", "step", {"key": "{{key}}"}, output="log") for n in range(STEPS)]
    graph.reducer("log", "append")
    graph.chain(*nodes)
    graph.end(nodes[-1])
    return graph


async def stepping(house):
    """Work at the steps of all runs, and note every one."""
    executor = house.executor("stepper", max_in_flight=200)

    @executor.tool()
    async def step(key: str) -> str:
        return f"{key}:{await house.ledger.note(key)}"

    await house.work(executor)


def check_file(path):
    """Return what SQLite says of a file, and how many events of runs it has."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as connection:
        [[verdict]] = connection.execute("PRAGMA integrity_check")
        [[events]] = connection.execute("SELECT coalesce(sum(last_sequence), 0) FROM runs")
    return verdict, events


def back_up(source, target):
    """Copy a file that a server writes to, as an operator would."""
    with (
        closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True, timeout=10)) as origin,
        closing(sqlite3.connect(target)) as copy,
    ):
        origin.backup(copy, pages=200, sleep=0.001)


async def back_up_in_a_loop(data, folder, checked):
    number = 0
    while True:
        number += 1
        target = folder / f"backup-{number % 2}.db"
        target.unlink(missing_ok=True)
        await asyncio.to_thread(back_up, data, target)
        checked.append(await asyncio.to_thread(check_file, target))
        await asyncio.sleep(0.2)  # the pace of the loop; nothing waits for it


async def watch_to_the_end(client, run_id):
    """Watch a run from its beginning, over whatever happens, and return the sequences that came."""
    async with aclosing(client.watch(run_id, view=WATCH_VIEW_SUMMARY)) as events:
        return [event.sequence async for event in events]


async def everything_at_once(server, data, folder, *, runs, watchers, kills):
    checked = []
    async with house_at(server.address) as house, asyncio.TaskGroup() as group:
        await stepping(house)
        client = await house.client()
        await client.register_graph(long_walk())
        handles = [
            await client.start_run("walk", run_id=f"r{number}", variables={"key": f"r{number}"})
            for number in range(runs)
        ]
        backups = group.create_task(back_up_in_a_loop(data, folder, checked))
        watching = [
            group.create_task(watch_to_the_end(client, f"r{number}")) for number in range(watchers)
        ]
        for kill in range(1, kills + 1):
            share = runs * STEPS * kill // (kills + 1)
            await house.ledger.until(lambda ledger, share=share: ledger.calls.total() >= share)
            await server.kill()
            assert check_file(data)[0] == "ok"
            await server.start()
        rows = await asyncio.gather(*(handle.wait() for handle in handles))
        sequences = [await task for task in watching]
        backups.cancel()
        states = [await handle.state() for handle in handles]
        logs = [await history(client, handle.run_id) for handle in handles[:watchers]]
    assert {row.status for row in rows} == {COMPLETED}
    assert sequences == [list(range(1, len(log) + 1)) for log in logs]
    assert checked
    assert {verdict for verdict, _ in checked} == {"ok"}
    return house.ledger, states


def assert_nothing_is_missing_or_twice(ledger, states):
    """Each step's result is in the state once, and each step was done once: its executor lived all the time."""
    for number, state in enumerate(states):
        key = f"r{number}"
        assert ledger.calls[key] == STEPS
        assert state.variables["log"] == [f"{key}:{n}" for n in range(1, STEPS + 1)]


@pytest.mark.timeout(90)
async def test_runs_watchers_and_backups_share_a_file_through_three_kills(data, tmp_path):
    async with ServerProcess(data) as server:
        ledger, states = await everything_at_once(
            server, data, tmp_path, runs=100, watchers=20, kills=3
        )
        assert_nothing_is_missing_or_twice(ledger, states)
        assert server.faults() == []
        assert "locked" not in "\n".join(server.lines)
    assert check_file(data)[0] == "ok"


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_a_hundred_runs_share_a_file_through_ten_kills_again_and_again(tmp_path):
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        data = folder / "journal.db"
        async with ServerProcess(data) as server:
            ledger, states = await everything_at_once(
                server, data, folder, runs=100, watchers=20, kills=10
            )
            assert_nothing_is_missing_or_twice(ledger, states)
            assert server.faults() == []
        assert check_file(data)[0] == "ok"


@pytest.mark.timeout(60)
async def test_a_second_server_on_the_file_refuses_with_a_clear_word_and_the_first_goes_on(
    server, data, client
):
    second = ServerProcess(data)
    async with Process(*second.command) as process:
        code = await process.ended()

    assert code == 5
    said = "\n".join(process.lines)
    assert str(data) in said
    assert "Traceback" not in said
    graph = Graph("one")
    graph.assign("a")
    graph.end("a")
    run = await client.start_run(graph)
    assert (await run.wait()).status == COMPLETED
