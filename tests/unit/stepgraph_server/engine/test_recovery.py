"""What a restart takes up. More of it, with executors that come back, is in test_engine.py."""

from __future__ import annotations

from stepgraph_server.core.inputs import Pause, Unpause
from tests.support.engine_executor import Executor
from tests.support.engine_rig import NAMESPACE, question, rig, work
from tests.support.engine_time import in_virtual_time


@in_virtual_time
async def test_what_only_waits_is_left_alone():
    """A timer at most: runs that wait for people or time are not loaded."""
    async with rig() as it:
        await it.start(question(), "asks")
        await it.start(work(), "later", delay={"seconds": 60})
        await it.start(work(), "works")
        await it.settle()
        store = it.store
        it.crash()
        found = await it.recovery.recover()
        assert [key.run_id for key in found] == ["works"]
    assert store is it.store


@in_virtual_time
async def test_a_paused_run_keeps_what_executors_have_of_it():
    """Its attempts are taken up, its other tasks are not: they wait until it goes on."""
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(work())
        await it.settle()
        await it.engine.change_run(NAMESPACE, "r1", Pause(reason=""), None)
        await it.settle()
        [key] = await it.recovery.recover()
        assert key.run_id == "r1"
        executor.finish_all()
        assert await it.settle() == "PAUSED"
        assert it.runner.live_count == 0
        await it.engine.change_run(NAMESPACE, "r1", Unpause(), None)
        assert await it.settle() == "COMPLETED"
        it.check_quiescent()
