"""One decision in the making: what is emitted is applied and kept at once."""

from __future__ import annotations

from stepgraph.v1 import event_pb2
from stepgraph_server.core.inputs import Yield
from stepgraph_server.core.instants import from_timestamp
from stepgraph_server.core.run import evolve
from stepgraph_server.core.turn import Turn
from tests.support.core_pieces import compiled, state_of, world
from tests.support.core_run import START


def test_what_is_emitted_has_its_place_and_time_and_changes_the_state() -> None:
    state = state_of(compiled("nodes: [{id: a, assign: {}}]"))
    turn = Turn(state, world(), START, evolve)
    turn.emit("run_started", event_pb2.RunStarted(max_iterations=7))
    (event,) = turn.events
    assert (event.sequence, from_timestamp(event.time)) == (1, START)
    assert state.max_iterations == 7


def test_commands_are_kept_in_order() -> None:
    turn = Turn(state_of(compiled("nodes: [{id: a, assign: {}}]")), world(), START, evolve)
    turn.command(Yield())
    assert turn.commands == [Yield()]
