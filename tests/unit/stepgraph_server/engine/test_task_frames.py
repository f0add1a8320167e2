"""Attempts as executors get them."""

from __future__ import annotations

import asyncio

from stepgraph_server.engine import task_frames
from tests.support.engine_executor import Executor, failed
from tests.support.engine_rig import NAMESPACE, rig, work
from tests.support.engine_time import in_virtual_time


@in_virtual_time
async def test_an_attempt_tells_all_that_its_executor_needs():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(work(limits={"run": "7s"}))
        await it.settle()
        (task,) = executor.running.values()
        assert task.task_id == task.idempotency_key == "r1/1/a/t0/e0"
        assert (task.attempt, task.tries, task.node_id) == (1, 1, "a")
        assert (task.limits.run.seconds, task.limits.accept.seconds) == (7, 10)
        assert (task.input.agent.agent_kind, task.input.agent.task) == ("worker", "go")
        assert not task.input_size_bytes


@in_virtual_time
async def test_a_further_try_has_the_same_idempotency_key():
    async with rig() as it:
        executor = await Executor(it, script=failed).connect()
        await it.start(work(retry={"first_delay": "0.001s", "max_tries": 2}))
        executor.script = None
        await it.settle()
        executor.report(failed(next(iter(executor.running.values()))))
        await asyncio.sleep(1)
        (task,) = executor.running.values()
        assert (task.attempt, task.tries) == (2, 2)
        assert task.idempotency_key == "r1/1/a/t0/e0"


@in_virtual_time
async def test_an_input_that_is_too_large_for_a_frame_is_read_apart(monkeypatch):
    monkeypatch.setattr(task_frames, "MAX_INPUT_BYTES", 3)
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(work())
        await it.settle()
        (task,) = executor.running.values()
        data = await it.engine.task_input(NAMESPACE, task.task_id, 1, executor.token)
        assert task.input_size_bytes == len(data) > 3
        assert not task.HasField("input")
        assert task.limits.accept.seconds == 10
