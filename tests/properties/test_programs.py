"""For all step programs, Maps and people: a run of them ends or waits for something named, also over restarts and yields.

Every step is decided twice, and every invariant is checked after it; see tests/support/core_run.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from stepgraph.v1 import event_pb2, run_pb2
from stepgraph_server.core.inputs import Cancel, GoOn, RunLimits, Start, TimePassed
from stepgraph_server.core.run import fold
from stepgraph_server.core.state import RULES_VERSION
from tests.support.core_player import Player, result_of
from tests.support.core_programs import program_graphs
from tests.support.core_run import RUN_ID

if TYPE_CHECKING:
    from stepgraph_server.core.graph import CompiledGraph
    from stepgraph_server.core.state import RunState

SEEDS = st.integers(0, 2**32)


def _started(graph: CompiledGraph, seed: int) -> Player:
    player = Player(graph, seed, seed, room=2, racing=True)
    started = event_pb2.RunStarted(run_id=RUN_ID, rules_version=RULES_VERSION, max_iterations=8)
    player.run.happen(Start(started=started))
    return player


def _same(first: RunState, second: RunState) -> None:
    assert (first.status == run_pb2.RUN_STATUS_COMPLETED) == (
        second.status == run_pb2.RUN_STATUS_COMPLETED
    )
    if first.status == run_pb2.RUN_STATUS_COMPLETED:
        assert result_of(first) == result_of(second)


@given(program_graphs(), SEEDS, st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_a_run_ends_whatever_programs_and_people_do(
    graph: CompiledGraph, seed: int, room: int
) -> None:
    state = Player(graph, seed, seed, room=room, racing=True).play()
    assert not state.spawned
    assert not state.tasks


@given(program_graphs(), SEEDS, SEEDS, SEEDS)
@settings(max_examples=20, deadline=None)
def test_who_ends_first_does_not_matter_where_nothing_races(
    graph: CompiledGraph, seed: int, one: int, other: int
) -> None:
    """I9, without FIRST, EACH and deadlines, whose point it is that it does."""
    first = Player(graph, seed, one, room=9, faulty=False).play()
    second = Player(graph, seed, other, room=1, faulty=False).play()
    _same(first, second)


@given(program_graphs(), SEEDS, SEEDS)
@settings(max_examples=20, deadline=None)
def test_where_decisions_yield_does_not_matter(graph: CompiledGraph, seed: int, order: int) -> None:
    limits = RunLimits(max_work_per_decision=1)
    first = Player(graph, seed, order, room=9, faulty=False).play()
    second = Player(graph, seed, order, room=9, faulty=False, limits=limits).play()
    _same(first, second)


@given(program_graphs(), SEEDS, st.integers(1, 30))
@settings(max_examples=20, deadline=None)
def test_a_cancelled_run_ends_whenever_it_is_cancelled(
    graph: CompiledGraph, seed: int, steps: int
) -> None:
    player = _started(graph, seed)
    for _ in range(steps):
        if player.run.state.final:
            return
        player.step()
    if player.run.state.final:
        return
    player.run.happen(Cancel(reason="enough"))
    player.run.now += player.run.world.limits.cancel_grace
    player.run.happen(TimePassed())
    assert player.run.state.final


@given(program_graphs(), SEEDS)
@settings(max_examples=20, deadline=None)
def test_every_prefix_that_ends_a_decision_folds_and_goes_on(
    graph: CompiledGraph, seed: int
) -> None:
    """A finished turn is never polled again, wherever the server stopped."""
    player = _started(graph, seed)
    while not player.run.state.final:
        player.run.restart()
        assert not player.run.happen(GoOn()).events
        player.step()
    polls = [
        event.task_completed.task_id
        for event in player.run.events
        if event.task_completed.result.HasField("step")
    ]
    assert len(polls) == len(set(polls))
    assert fold(RUN_ID, graph, player.run.events).status == player.run.state.status
