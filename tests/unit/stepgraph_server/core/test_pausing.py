"""Pausing and unpausing; the whole story is in tests/scenarios."""

from __future__ import annotations

import pytest

from stepgraph_server.core.errors import Refused
from stepgraph_server.core.inputs import Cancel, Pause, Unpause
from stepgraph_server.core.run import next_due
from tests.support.core_pieces import compiled, started, world
from tests.support.core_world import PlayedExecutor, PlayedWorld

TOOL = compiled('nodes: [{id: a, tool_call: {tool_name: t, args_template: "{}"}}]')


def test_nothing_but_the_runs_own_limit_wakes_a_paused_run() -> None:
    """Limits of its tasks are looked at when it goes on."""
    run = started(TOOL)
    before = next_due(run.state)
    run.happen(Pause(reason="wait"))
    assert before is not None
    assert next_due(run.state) is None
    run.happen(Unpause())
    assert next_due(run.state) == before


def test_tasks_that_waited_for_room_are_handed_out_when_it_goes_on() -> None:
    """An executor that came meanwhile gets them; none is remembered as waiting while the run is paused."""
    empty = PlayedWorld()
    run = started(TOOL, empty)
    [task] = run.state.tasks.values()
    assert task.waits
    run.happen(Pause(reason=""))
    assert not task.waits
    empty.join(PlayedExecutor(id="e1", instance="i1"))
    run.happen(Unpause())
    assert task.executor_id == "e1"


@pytest.mark.parametrize("wish", [Pause(reason=""), Unpause()])
def test_a_run_that_stops_is_neither_paused_nor_unpaused(wish: Pause | Unpause) -> None:
    """It would never come to an end."""
    run = started(TOOL, world())
    run.happen(Cancel(reason="stop"))
    with pytest.raises(Refused, match="is STOPPING, so it can't be") as refused:
        run.happen(wish)
    assert refused.value.reason == "RUN_ENDED"
    assert refused.value.metadata["status"] == "STOPPING"
