"""Runs are loaded a few at a time, each once, and those that somebody waits for come first."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from stepgraph_server.engine.live import LiveRun
from stepgraph_server.engine.loading import (
    FIRST_DELAY_S,
    MAX_DELAY_S,
    MAX_LOADS,
    Loading,
    delay_s,
)
from stepgraph_server.storage.records import RunKey
from tests.support.engine_time import in_virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def runs(count: int) -> list[LiveRun]:
    return [LiveRun(key=RunKey("default", f"r{number}")) for number in range(count)]


class Loads:
    """Loads that take until they are let go on."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.begun: list[LiveRun] = []
        self.at_once = 0
        self.most = 0
        self.gate = asyncio.Event()
        self.loading = Loading(self.load, group.create_task)

    async def load(self, run: LiveRun) -> None:
        self.begun.append(run)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await self.gate.wait()
        await asyncio.sleep(0)
        self.at_once -= 1


@asynccontextmanager
async def loads() -> AsyncIterator[Loads]:
    async with asyncio.TaskGroup() as group:
        yield Loads(group)


async def test_few_are_loaded_at_a_time_and_each_once() -> None:
    """In the order in which they were asked for."""
    asked = runs(5 * MAX_LOADS)
    async with loads() as it:
        for run in asked:
            it.loading.ask(run)
        await asyncio.sleep(0)
        assert len(it.begun) == MAX_LOADS
        assert len(it.loading) == 4 * MAX_LOADS
        it.gate.set()
    assert it.begun == asked
    assert it.most == MAX_LOADS
    assert len(it.loading) == 0


async def test_what_somebody_waits_for_comes_before_what_nobody_does() -> None:
    """Also if it was asked for later, or became wanted later."""
    patient, late = runs(3 * MAX_LOADS), runs(1)[0]
    hurried = patient[-1]
    async with loads() as it:
        for run in patient:
            it.loading.ask(run, is_patient=True)
        await asyncio.sleep(0)
        it.loading.ask(late)
        it.loading.hurry(hurried)
        it.loading.hurry(patient[0])  # its turn has come already
        it.gate.set()
    assert it.begun[MAX_LOADS : MAX_LOADS + 2] == [late, hurried]
    assert len(it.begun) == len(set(it.begun)) == len(patient) + 1


async def test_it_begins_again_after_it_had_nothing_to_do() -> None:
    """Nothing stays behind that waits for work."""
    async with loads() as it:
        it.gate.set()
        for run in runs(3):
            it.loading.ask(run)
            await asyncio.sleep(0.001)
    assert len(it.begun) == 3


def test_what_fails_again_waits_twice_as_long() -> None:
    """Up to a limit, however often."""
    assert [delay_s(tries) for tries in (1, 2, 3)] == [FIRST_DELAY_S * by for by in (1, 2, 4)]
    assert delay_s(1_000_000) == MAX_DELAY_S


@in_virtual_time
async def test_a_run_for_which_something_failed_is_loaded_later() -> None:
    """As late as the number of its failures says."""
    (run,) = runs(1)
    run.failures = 3
    async with loads() as it:
        it.gate.set()
        it.loading.ask_again(run)
        await asyncio.sleep(delay_s(3) - 0.001)
        assert it.begun == []
        await asyncio.sleep(0.002)
        assert it.begun == [run]
