"""How a run ends."""

from __future__ import annotations

from stepgraph_server.core import lifecycle
from stepgraph_server.core.inputs import Cancel
from stepgraph_server.core.run import evolve
from stepgraph_server.core.turn import Turn
from tests.support.core_pieces import compiled, started, world

TOOL = compiled('nodes: [{id: a, tool_call: {tool_name: t, args_template: "{}"}}]')


def test_a_cancel_without_a_reason_has_one() -> None:
    assert lifecycle.cancelled("").message == "cancelled on request"
    assert lifecycle.cancelled("enough").message == "enough"


def test_a_run_that_does_not_stop_is_not_advanced() -> None:
    run = started(TOOL)
    turn = Turn(run.state, world(), run.now, evolve)
    lifecycle.advance_stop(turn)
    lifecycle.on_grace_over(turn)
    assert not turn.events


def test_a_grace_that_is_not_over_ends_nothing() -> None:
    run = started(TOOL)
    run.happen(Cancel(reason="stop"))
    turn = Turn(run.state, world(), run.now, evolve)
    lifecycle.on_grace_over(turn)
    assert not turn.events
