"""How often, and when, a task is tried: as its policy says, also over a restart of the server."""

from __future__ import annotations

import time

import pytest

from stepgraph.v1.run_pb2 import RunStatus
from stepgraph_client import Failed, Graph, TaskContext, retry
from tests.support.e2e_house import happened, history

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]

COMPLETED = RunStatus.RUN_STATUS_COMPLETED
FAILED = RunStatus.RUN_STATUS_FAILED


def trying():
    policy = retry(max_tries=4, first_delay="200ms", factor=2, max_delay="600ms", jitter=0)
    graph = Graph("trying", retry=policy)
    graph.tool("work", "work", {}, output="done")
    graph.end("work")
    return graph


class Worker:
    """An executor that does as it is told at each try, and notes when."""

    def __init__(self, house, *tries):
        self.times = []
        self.seen = []
        self.executor = house.executor("e1")

        @self.executor.tool()
        async def work(ctx: TaskContext) -> str:
            self.times.append(time.monotonic())
            self.seen.append((ctx.tries, ctx.idempotency_key))
            await house.ledger.note("work")
            outcome = tries[min(len(self.times), len(tries)) - 1]
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

    @property
    def delays(self):
        return [later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)]


def failures_of(events):
    return [event.task_failed for event in events if event.HasField("task_failed")]


def planned_delays(events):
    return [
        round(
            e.task_failed.retry_time.ToDatetime().timestamp() - e.time.ToDatetime().timestamp(), 3
        )
        for e in events
        if e.HasField("task_failed") and e.task_failed.HasField("retry_time")
    ]


UNAVAILABLE = Failed("UNAVAILABLE", "the provider is away", category="technical")


async def test_a_task_is_tried_four_times_in_all_as_far_apart_as_the_policy_says(house, client):
    worker = Worker(house, UNAVAILABLE)
    await house.work(worker.executor)

    run = await client.start_run(trying())
    row = await run.wait()

    events = await history(client, run.run_id)
    failures = failures_of(events)
    assert (row.status, row.failure.code) == (FAILED, "UNAVAILABLE")
    assert [tries for tries, _ in worker.seen] == [1, 2, 3, 4]
    assert len({key for _, key in worker.seen}) == 1
    assert planned_delays(events) == [0.2, 0.4, 0.6]
    assert all(
        real >= planned - 0.01 for real, planned in zip(worker.delays, [0.2, 0.4, 0.6], strict=True)
    )
    assert [failure.tries for failure in failures] == [1, 2, 3, 4]
    assert {failure.failure.message for failure in failures} == {"the provider is away"}
    assert not failures[-1].HasField("retry_time")


async def test_tries_are_counted_on_over_a_restart_after_the_second(server, house, client):
    worker = Worker(house, UNAVAILABLE)
    await house.work(worker.executor)
    run = await client.start_run(trying())
    await happened(client, run.run_id, "task_failed", 2)

    await server.restart()
    row = await run.wait()

    events = await history(client, run.run_id)
    assert (row.status, len(worker.times)) == (FAILED, 4)
    assert [tries for tries, _ in worker.seen] == [1, 2, 3, 4]
    assert planned_delays(events) == [0.2, 0.4, 0.6]
    assert worker.delays[1] >= 0.39


async def test_the_fourth_try_may_be_the_one_that_works(house, client):
    worker = Worker(house, UNAVAILABLE, UNAVAILABLE, UNAVAILABLE, "fine")
    await house.work(worker.executor)

    run = await client.start_run(trying())

    assert (await run.wait()).status == COMPLETED
    assert (await run.state()).variables["done"] == "fine"
    assert house.ledger.calls["work"] == 4


@pytest.mark.parametrize(
    "failure",
    [
        Failed("INVALID_ARGUMENT", "no", category="technical", retryable=False),
        Failed("INVALID_ARGUMENT", "no", category="business"),
    ],
)
async def test_what_should_not_be_tried_again_is_not(house, client, failure):
    worker = Worker(house, failure)
    await house.work(worker.executor)

    run = await client.start_run(trying())
    row = await run.wait()

    assert (row.status, row.failure.code) == (FAILED, "INVALID_ARGUMENT")
    assert house.ledger.calls["work"] == 1


async def test_an_executor_that_knows_when_to_come_back_is_believed(house, client):
    busy = Failed("RATE_LIMITED", "slow down", retryable=True, retry_after="700ms")
    worker = Worker(house, busy, "fine")
    await house.work(worker.executor)

    run = await client.start_run(trying())

    assert (await run.wait()).status == COMPLETED
    assert planned_delays(await history(client, run.run_id)) == [0.7]
    assert worker.delays[0] >= 0.69
