"""Scenarios of executors: capacity is kept, missing ones are said aloud, faults and lost connections repeat nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from stepgraph.v1.event_pb2 import TASK_LOSS_REASON_DISCONNECTED, TASK_LOSS_REASON_FORGOTTEN
from stepgraph.v1.run_pb2 import RunStatus
from stepgraph_client import Executor, Graph, TaskContext, error_occurred, retry
from stepgraph_server.config import SessionSettings
from stepgraph_server.core.instants import MILLISECOND, SECOND, Span
from tests.support.e2e_house import IN_PROCESS, happened, history, house_with_server, kinds
from tests.support.e2e_proxy import Network

COMPLETED = RunStatus.RUN_STATUS_COMPLETED


def with_grace(span):
    return SessionSettings(ping_interval=SECOND, silence_limit=Span(2 * SECOND), lost_grace=span)


class Gate:
    """Holds calls until they are let go, one by one or all."""

    def __init__(self):
        self._room = asyncio.Semaphore(0)

    async def pass_(self):
        await self._room.acquire()

    def let(self, count=10_000):
        for _ in range(count):
            self._room.release()


@pytest.fixture
async def house(request):
    grace = getattr(request, "param", Span(30 * SECOND))
    settings = replace(IN_PROCESS, session=with_grace(grace))
    async with house_with_server(settings=settings) as (house, _):
        yield house


short_grace = pytest.mark.parametrize("house", [Span(300 * MILLISECOND)], indirect=True)


@pytest.fixture
async def client(house):
    return await house.client()


def worker(house, executor_id, gate, *, address="", max_in_flight=4) -> Executor:
    executor = house.executor(executor_id, max_in_flight=max_in_flight, address=address)

    @executor.tool(name="work")
    async def work(ctx: TaskContext) -> str:
        await house.ledger.note(ctx.idempotency_key)
        await house.ledger.begin(executor_id)
        try:
            await gate.pass_()
        finally:
            await house.ledger.end(executor_id)
        return executor_id

    return executor


def one_task(**options):
    graph = Graph("work", **options)
    graph.tool("work", "work", {}, output="by")
    graph.end("work")
    return graph


async def start_all(client, count):
    await client.register_graph(one_task())
    return await asyncio.gather(*(client.start_run("work") for _ in range(count)))


async def wait_all(runs):
    return [row.status for row in await asyncio.gather(*(run.wait() for run in runs))]


async def in_flight(client):
    return {each.executor_id: each.in_flight async for each in client.executors()}


# ---- capacity --------------------------------------------------------------------------------


async def test_no_executor_ever_has_more_than_it_takes_and_a_second_one_gets_its_share_at_once(
    house, client
):
    gate = Gate()
    await house.work(worker(house, "e1", gate))
    runs = await start_all(client, 60)
    await house.ledger.until(lambda ledger: ledger.working["e1"] == 4)
    assert await in_flight(client) == {"e1": 4}

    async with asyncio.timeout(1):
        await house.work(worker(house, "e2", gate))
        await house.ledger.until(lambda ledger: ledger.working["e2"] == 4)
    gate.let()

    assert set(await wait_all(runs)) == {COMPLETED}
    assert house.ledger.most["e1"] == house.ledger.most["e2"] == 4
    assert house.ledger.calls["e1"] + house.ledger.calls["e2"] == 60
    assert house.ledger.calls["e2"] > 10
    assert await in_flight(client) == {"e1": 0, "e2": 0}


async def test_lowering_the_capacity_lets_what_runs_go_on_and_zero_drains(house, client):
    gate = Gate()
    executor = worker(house, "e1", gate)
    await house.work(executor)
    runs = await start_all(client, 20)
    await house.ledger.until(lambda ledger: ledger.working["e1"] == 4)

    executor.resize(1)
    house.ledger.most["e1"] = 0
    gate.let(8)  # the first four that run, and four more one after the other
    await house.ledger.called("e1", 9)
    assert house.ledger.working["e1"] == 1

    executor.resize(0)
    gate.let(1)
    await house.ledger.until(lambda ledger: ledger.working["e1"] == 0)
    rows = [await client.get_run(run.run_id) for run in runs]
    assert [row.status for row in rows].count(COMPLETED) <= 9
    assert house.ledger.calls["e1"] == 9, "nothing new came"

    executor.resize(4)
    gate.let()
    assert set(await wait_all(runs)) == {COMPLETED}
    assert house.ledger.calls["e1"] == 20


async def test_a_task_of_an_executor_that_leaves_goes_to_another_one_at_once(house, client):
    gate, open_gate = Gate(), Gate()
    open_gate.let()
    first = worker(house, "e1", gate)
    await house.work(first)
    [run] = await start_all(client, 1)
    await house.ledger.called("e1")
    await house.work(worker(house, "e2", open_gate))

    async with asyncio.timeout(5):
        await house.leave(first)
        assert await wait_all([run]) == [COMPLETED]

    assert (await run.state()).variables["by"] == "e2"


# ---- an executor that is lost ----------------------------------------------------------------


@short_grace
async def test_a_task_of_a_lost_executor_moves_when_its_grace_is_over(house, client):
    gate, open_gate = Gate(), Gate()
    open_gate.let()
    async with Network(house.address) as network:
        await house.work(worker(house, "e1", gate, address=network.address))
        [run] = await start_all(client, 1)
        await house.ledger.called("e1")
        await house.work(worker(house, "e2", open_gate))

        network.target = "127.0.0.1:1"  # nobody is there
        network.reset()
        lost = await happened(client, run.run_id, "task_lost")

    assert await wait_all([run]) == [COMPLETED]
    assert lost.task_lost.reason == TASK_LOSS_REASON_DISCONNECTED
    assert (await run.state()).variables["by"] == "e2"


async def test_a_reset_connection_repeats_nothing_that_is_under_way_or_done(house, client):
    gate = Gate()
    async with Network(house.address) as network:
        await house.work(worker(house, "e1", gate, address=network.address, max_in_flight=10))
        runs = await start_all(client, 20)
        for number in range(3):
            await house.ledger.called("e1", 10 + 2 * number)
            network.reset()
            gate.let(2)  # these end while nobody is connected, or just after
            await network.connected(number + 2)
        gate.let()

        assert set(await wait_all(runs)) == {COMPLETED}

    assert house.ledger.calls["e1"] == 20
    assert set(house.ledger.calls.values()) == {1, 20}, "each task was begun once"
    for run in runs:
        events = await history(client, run.run_id)
        assert kinds(events).count("task_completed") == 1
        assert "task_lost" not in kinds(events)


async def test_a_silent_connection_is_given_up_and_its_executor_comes_back_with_what_it_has(
    house, client
):
    gate = Gate()
    async with Network(house.address) as network:
        await house.work(worker(house, "e1", gate, address=network.address))
        runs = await start_all(client, 2)
        await house.ledger.called("e1", 2)

        network.is_black_hole = True
        gate.let(1)
        await network.connected(2)
        network.is_black_hole = False
        gate.let()
        assert set(await wait_all(runs)) == {COMPLETED}

    assert house.ledger.calls["e1"] == 2


async def test_a_slow_line_makes_nothing_but_time_pass(house, client):
    gate = Gate()
    gate.let()
    async with Network(house.address) as network:
        network.delay_s = 0.03
        await house.work(worker(house, "e1", gate, address=network.address))
        runs = await start_all(client, 20)
        assert set(await wait_all(runs)) == {COMPLETED}

    assert house.ledger.calls["e1"] == 20
    assert network.connections == 1


# ---- faults and absences ---------------------------------------------------------------------


async def test_an_executor_that_raises_is_a_failure_with_its_words_and_never_its_trace(
    house, client
):
    executor = house.executor("e1")

    @executor.tool(name="work")
    async def work() -> str:
        await house.ledger.note("work")
        message = "the disk is full"
        raise OSError(message)

    await house.work(executor)
    graph = Graph("work", retry=retry(max_tries=2, first_delay="10ms"))
    graph.tool("work", "work", {})
    graph.assign("mend", {"seen": "last_error.code"})
    graph.edge("work", "mend", when=error_occurred("EXECUTOR_ERROR"))
    graph.end("mend")
    run = await client.start_run(graph)
    row = await run.wait()

    events = await history(client, run.run_id)
    failures = [event.task_failed.failure for event in events if event.HasField("task_failed")]
    assert house.ledger.calls["work"] == 2
    assert {each.code for each in failures} == {"EXECUTOR_ERROR"}
    assert {each.message for each in failures} == {"OSError: the disk is full"}
    assert "Traceback" not in str(events)
    assert row.status == COMPLETED
    assert (await run.state()).variables["seen"] == "EXECUTOR_ERROR"


async def test_a_missing_executor_is_said_aloud_and_once_it_comes_the_run_goes_on(house, client):
    [run] = await start_all(client, 1)

    unclaimed = (await happened(client, run.run_id, "task_unclaimed")).task_unclaimed
    gate = Gate()
    gate.let()
    await house.work(worker(house, "e1", gate))

    assert unclaimed.requirement.tool.name == "work"
    assert await wait_all([run]) == [COMPLETED]


async def test_a_process_that_comes_back_under_its_id_without_its_work_gets_it_again_at_once(
    house, client
):
    gate, open_gate = Gate(), Gate()
    open_gate.let()
    async with Network(house.address) as network:
        await house.work(worker(house, "e1", gate, address=network.address))
        [run] = await start_all(client, 1)
        await house.ledger.called("e1")
        network.target = "127.0.0.1:1"
        network.reset()

        # The same id, and another process: it has another secret, and holds nothing.
        async with asyncio.timeout(5):
            await house.work(worker(house, "e1", open_gate))
            assert await wait_all([run]) == [COMPLETED]

    lost = [
        e.task_lost.reason for e in await history(client, run.run_id) if e.HasField("task_lost")
    ]
    assert lost == [TASK_LOSS_REASON_FORGOTTEN]
