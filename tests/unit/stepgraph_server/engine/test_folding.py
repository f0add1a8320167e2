"""States of runs, made of their journals."""

from __future__ import annotations

import asyncio

import pytest

from stepgraph_server.core.errors import Quarantined, Refused
from stepgraph_server.core.inputs import Cancel
from stepgraph_server.engine import folding
from stepgraph_server.storage.records import RunKey
from tests.support.engine_executor import Executor, succeeded
from tests.support.engine_rig import NAMESPACE, question, rig, steps
from tests.support.engine_time import in_virtual_time

R1 = RunKey(NAMESPACE, "r1")


@in_virtual_time
async def test_a_fold_gives_the_state_that_was_held():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(steps(3))
        executor.finish_all()
        await it.settle()
        live = it.runner.live(R1)
        assert live is not None
        held, folded = live.state, await it.runner.folder.fold(R1)
        assert held is not None
        assert (folded.sequence, folded.journal_bytes) == (held.sequence, held.journal_bytes)
        assert folded.tasks.keys() == held.tasks.keys()
        assert folded.variables == held.variables


@in_virtual_time
async def test_a_journal_is_read_in_parts(monkeypatch):
    monkeypatch.setattr(folding, "READ_BYTES", 1)
    async with rig() as it:
        await Executor(it, script=succeeded).connect()
        await it.start(steps(3))
        await it.settle()
        state = await it.runner.folder.fold(R1)
        assert state.sequence == len(it.store.events("r1"))


@in_virtual_time
async def test_a_long_fold_lets_others_have_their_turn(monkeypatch):
    """A run of ten thousand events is folded in many turns of the loop, also where they are in one batch."""
    monkeypatch.setattr(folding, "EVENTS_PER_TURN", 4)
    async with rig() as it:
        await Executor(it, script=succeeded).connect()
        await it.start(steps(8))
        await it.settle()
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        state = await it.runner.folder.fold(R1)
        counting.cancel()
        assert state.sequence == len(it.store.events("r1"))
        assert turns >= state.sequence // 4


@in_virtual_time
async def test_a_fold_stops_where_it_is_told_to_also_in_the_middle_of_a_batch():
    async with rig() as it:
        await it.start(steps(3))
        record = await it.runner.folder.record(R1)
        state = await it.runner.folder.fold_until(R1, record, 2)
        assert state.sequence == 2


@in_virtual_time
async def test_a_run_that_is_not_there_is_refused():
    async with rig() as it:
        with pytest.raises(Refused, match="RUN_NOT_FOUND"):
            await it.runner.folder.fold(R1)


@in_virtual_time
async def test_what_can_not_be_folded_is_quarantined_and_says_how_far_it_can_be_read():
    async with rig() as it:
        await it.start(question())
        await it.engine.change_run(NAMESPACE, "r1", Cancel(reason=""), None)
        whole = len(it.store.events("r1"))
        it.store.corrupt("r1")
        with pytest.raises(Quarantined) as caught:
            await it.runner.folder.fold(R1)
        assert 0 < caught.value.last_sequence < whole
        await it.store.runs.set_quarantined(R1)
        with pytest.raises(Quarantined, match=folding.QUARANTINED_BEFORE):
            await it.runner.folder.fold(R1)
