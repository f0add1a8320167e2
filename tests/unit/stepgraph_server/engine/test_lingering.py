"""Long runs that wait, and stay in memory for a while."""

from __future__ import annotations

import asyncio

from stepgraph_server.core.graph import GraphDefaults, compile_graph
from stepgraph_server.core.inputs import Cancel
from stepgraph_server.core.instants import Instant
from stepgraph_server.core.run import new_state
from stepgraph_server.engine import lingering
from stepgraph_server.engine.lingering import Lingering
from stepgraph_server.engine.live import LiveRun
from stepgraph_server.storage.records import RunKey
from tests.support.engine_rig import NAMESPACE, question, rig
from tests.support.engine_time import in_virtual_time


def run(name, sequence):
    state = new_state(name, compile_graph(question(), GraphDefaults()), Instant(0))
    state.sequence = sequence
    return LiveRun(key=RunKey(NAMESPACE, name), state=state)


def test_only_long_runs_stay():
    """A short one is read again in no time."""
    runs = Lingering()
    assert not runs.take(run("a", lingering.LONG_EVENTS - 1))
    assert runs.take(run("a", lingering.LONG_EVENTS))


def test_the_one_that_came_to_rest_first_goes_first():
    """To come to rest again counts; one that is gone anyway is not named."""
    runs = Lingering()
    some = [run(str(number), lingering.LONG_EVENTS) for number in range(lingering.MAX_LINGERING)]
    for each in some:
        assert runs.take(each)
    assert runs.too_many() is None
    runs.take(some[0])
    runs.drop(some[1])
    runs.take(run("x", lingering.LONG_EVENTS))
    assert runs.too_many() is None
    runs.take(run("y", lingering.LONG_EVENTS))
    assert runs.too_many() is some[2]


@in_virtual_time
async def test_a_long_run_is_not_read_again_for_each_answer(monkeypatch):
    """It is let go when others have come to rest since, and goes on all the same."""
    monkeypatch.setattr(lingering, "LONG_EVENTS", 1)
    monkeypatch.setattr(lingering, "MAX_LINGERING", 1)
    async with rig() as it:
        await it.start(question())
        await it.settle()
        assert it.runner.live_count == 1
        await it.start(question(), run_id="r2")
        await it.settle("r2")
        assert it.runner.live(RunKey(NAMESPACE, "r1")) is None
        assert it.runner.live(RunKey(NAMESPACE, "r2")) is not None
        for run_id in ("r1", "r2"):
            await it.engine.change_run(NAMESPACE, run_id, Cancel(reason=""), None)
        await asyncio.sleep(1)
        assert (it.status("r1"), it.status("r2")) == ("CANCELLED", "CANCELLED")
        assert it.runner.live_count == 0
