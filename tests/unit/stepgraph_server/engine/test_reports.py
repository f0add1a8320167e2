"""Results that refer to stored values are taken once it is known that these are there."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING

import pytest

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import value_pb2
from stepgraph_server.core.instants import Instant
from stepgraph_server.engine.reports import LOOK_UP_PERIOD_S
from tests.support.engine_executor import Executor, succeeded
from tests.support.engine_rig import Rig, rig, wide, work
from tests.support.engine_store import unavailable
from tests.support.engine_time import in_virtual_time
from tests.support.hellos import agent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stepgraph.v1 import task_pb2

CONTENT = b"a large content"
STORED = value_pb2.StoredValue(
    digest=f"sha256:{hashlib.sha256(CONTENT).hexdigest()}",
    size_bytes=len(CONTENT),
    form=value_pb2.VALUE_FORM_TEXT,
)


async def store(it: Rig) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield CONTENT

    await it.store.values.put("default", STORED, pieces(), create_time=Instant(1))


def referring(task: task_pb2.Task) -> pb.AttemptOutcome:
    outcome = succeeded(task)
    outcome.succeeded.agent.output.stored.CopyFrom(STORED)
    return outcome


def failures(it: Rig) -> list[tuple[str, str]]:
    return [
        (event.task_failed.failure.code, event.task_failed.failure.message)
        for event in it.store.events("r1")
        if event.WhichOneof("kind") == "task_failed"
    ]


@in_virtual_time
async def test_a_result_whose_stored_value_is_there_is_taken():
    async with rig() as it:
        await store(it)
        executor = await Executor(it, script=referring).connect()
        await it.start(work())
        assert await it.settle() == "COMPLETED"
        assert executor.verdicts() == ["ACCEPTED"]
        it.check_quiescent()


@in_virtual_time
async def test_a_result_whose_stored_value_is_missing_is_a_failed_attempt_that_names_it():
    """The verdict is the same as for every failure: the executor has reported, and may forget it."""
    async with rig() as it:
        executor = await Executor(it, script=referring).connect()
        await it.start(work())
        assert await it.settle() == "FAILED"
        assert set(executor.verdicts()) == {"ACCEPTED"}
        assert {code for code, _ in failures(it)} == {"RESULT_INVALID"}
        assert all(STORED.digest in message for _, message in failures(it))
        it.check_quiescent()


@in_virtual_time
async def test_of_one_frame_only_what_refers_to_a_missing_value_fails():
    async with rig() as it:
        executor = await Executor(it, max_in_flight=3).connect()
        await it.start(wide(3))
        await it.settle()
        first, *others = list(executor.running.values())
        executor.report(succeeded(first), *map(referring, others[:1]), *map(succeeded, others[1:]))
        await it.settle()
        assert it.store.kinds("r1").count("task_completed") == 2
        assert it.store.kinds("r1").count("task_failed") == 1


@in_virtual_time
async def test_nothing_is_looked_up_for_a_result_without_stored_values(monkeypatch):
    """The common path reads nothing."""
    async with rig() as it:
        monkeypatch.setattr(it.store.values, "stat", None)
        await Executor(it, script=succeeded).connect()
        await it.start(work())
        assert await it.settle() == "COMPLETED"


@in_virtual_time
@pytest.mark.parametrize("times", [1, 5])
async def test_while_nothing_can_be_read_a_result_waits_and_is_not_lost(monkeypatch, times):
    async with rig() as it:
        await store(it)
        left, stat = [times], it.store.values.stat

        async def sometimes(namespace: str, digest: str) -> value_pb2.StoredValue | None:
            left[0] -= 1
            if left[0] >= 0:
                raise unavailable()
            return await stat(namespace, digest)

        monkeypatch.setattr(it.store.values, "stat", sometimes)
        executor = await Executor(it, capabilities=[agent("worker")], script=referring).connect()
        await it.start(work())
        assert await it.settle() == "RUNNING"
        assert executor.verdicts() == []
        while left[0] >= 0:
            await it.settle()
            await asyncio.sleep(LOOK_UP_PERIOD_S)
        assert await it.settle() == "COMPLETED"
        assert executor.verdicts() == ["ACCEPTED"]
        it.check_quiescent()
