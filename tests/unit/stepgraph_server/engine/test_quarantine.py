"""Runs that can't go on: the others do, and whoever waits hears of it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from stepgraph_server.core.errors import Quarantined
from stepgraph_server.core.inputs import Cancel
from stepgraph_server.engine import dispatcher
from stepgraph_server.engine import runner as runner_module
from stepgraph_server.storage.errors import AppendInvalid
from stepgraph_server.storage.records import RunKey
from tests.support.engine_executor import Executor, succeeded
from tests.support.engine_rig import NAMESPACE, question, rig, together, wide, work
from tests.support.engine_time import in_virtual_time, turns

R1 = RunKey(NAMESPACE, "r1")


@in_virtual_time
async def test_an_append_that_can_not_be_stored_at_all_quarantines_the_run():
    async with rig() as it:
        executor = await Executor(it, max_in_flight=10).connect()
        await it.start(work())
        await it.start(work(), "r2")
        it.store.fail_next("task_completed", AppendInvalid(R1, "too long"))
        executor.report(*[succeeded(task) for task in executor.running.values()][:1])
        await it.settle()
        assert it.store.runs.by_key[R1].record.quarantined
        assert executor.verdicts() == ["STALE"]
        executor.finish_all()
        assert await it.settle("r2") == "COMPLETED"
        it.check_quiescent()


@in_virtual_time
async def test_a_decision_that_raises_quarantines_that_run_only(monkeypatch, caplog):
    async with rig() as it:
        executor = await Executor(it, max_in_flight=10).connect()
        await it.start(wide(2))
        await it.start(work(), "r2")
        decide = runner_module.decide

        def broken(state, happened, world, now):
            if state.run_id == "r1":
                # It breaks when it has reserved a slot already.
                world.place(next(iter(state.tasks.values())))
                raise ZeroDivisionError
            return decide(state, happened, world, now)

        monkeypatch.setattr(runner_module, "decide", broken)
        with caplog.at_level(logging.ERROR):
            executor.finish_all()
            assert await it.settle("r2") == "COMPLETED"
        assert it.store.runs.by_key[R1].record.quarantined
        assert sorted(executor.verdicts()) == ["ACCEPTED", "STALE", "STALE"]
        assert it.hub.ended_runs == ["r1"]
        with pytest.raises(Quarantined):
            await it.engine.change_run(NAMESPACE, "r1", Cancel(reason=""), None)
        it.check_quiescent()
        assert len(it.runner.timers) == 0


@in_virtual_time
async def test_a_run_stays_quarantined_while_the_mark_can_not_be_written(monkeypatch):
    async with rig() as it:
        await it.start(question())
        it.store.runs.unmarkable = True
        with monkeypatch.context() as broken:
            broken.setattr(runner_module, "decide", lambda *_: 1 / 0)
            with pytest.raises(Quarantined):
                await it.runner.settled(R1)
        assert not it.store.runs.by_key[R1].record.quarantined
        # Its rules work again, but it is not acted on.
        with pytest.raises(Quarantined):
            await it.engine.change_run(NAMESPACE, "r1", Cancel(reason=""), None)
        it.store.runs.unmarkable = False
        await asyncio.sleep(10)
        assert it.store.runs.by_key[R1].record.quarantined
        it.check_quiescent()


@in_virtual_time
async def test_what_was_on_its_way_when_a_run_was_quarantined_is_answered_but_not_acted_on(
    monkeypatch,
):
    async with rig() as it:
        executor = await Executor(it, max_in_flight=10).connect()
        await it.start(wide(2))
        one, other = executor.running.values()
        it.store.journal.hold()
        executor.report(succeeded(one))
        await turns()
        monkeypatch.setattr(runner_module, "decide", lambda *_: 1 / 0)
        executor.report(succeeded(other))
        it.store.journal.release()
        await it.settle()
        assert sorted(executor.verdicts()) == ["ACCEPTED", "STALE"]
        assert it.store.runs.by_key[R1].record.quarantined
        it.check_quiescent()


@in_virtual_time
async def test_what_was_on_its_way_when_a_run_was_quarantined_may_fail(monkeypatch):
    async with rig() as it:
        executor = await Executor(it, max_in_flight=10).connect()
        await it.start(wide(2))
        one, other = executor.running.values()
        it.store.fail_next("task_completed")
        it.store.journal.hold()
        executor.report(succeeded(one))
        await turns()
        monkeypatch.setattr(runner_module, "decide", lambda *_: 1 / 0)
        executor.report(succeeded(other))
        it.store.journal.release()
        await it.settle()
        assert executor.verdicts() == ["STALE", "STALE"]
        it.check_quiescent()


@in_virtual_time
async def test_an_input_that_can_not_be_made_quarantines_that_run_and_others_of_the_commit_live(
    monkeypatch,
):
    async with rig() as it:
        executor = await Executor(it, max_in_flight=10).connect()
        task_frame = dispatcher.task_frame

        def broken(state, task, traceparent):
            if state.run_id == "r1":
                raise ZeroDivisionError
            return task_frame(state, task, traceparent)

        monkeypatch.setattr(dispatcher, "task_frame", broken)
        await together(it.start(wide(3)), it.start(work(), "r2"))
        await it.settle()
        assert [task_id for task_id, _ in executor.received] == ["r2/1/a/t0/e0"]
        executor.finish_all()
        assert await it.settle("r2") == "COMPLETED"
        assert it.store.runs.by_key[R1].record.quarantined
        it.check_quiescent()


@in_virtual_time
async def test_a_run_whose_graph_is_gone_is_quarantined():
    async with rig() as it:
        await it.start(question())
        it.graphs._compiled.clear()
        it.store.graphs._unnamed.clear()
        with pytest.raises(Quarantined):
            await it.runner.settled(R1)
        await it.settle()
        assert it.store.runs.by_key[R1].record.quarantined


@in_virtual_time
async def test_no_run_is_marked_for_what_goes_wrong_while_the_server_ends(monkeypatch):
    async with rig() as it:
        executor = await Executor(it, max_in_flight=10).connect()
        await it.start(wide(2))
        monkeypatch.setattr(runner_module, "decide", lambda *_: 1 / 0)
        it.runner.close()
        executor.report(succeeded(next(iter(executor.running.values()))))
        await turns()
        assert it.runner.live(R1) is None
        assert not it.store.runs.by_key[R1].record.quarantined
