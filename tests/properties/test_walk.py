"""For all graphs, executors, people and orders: a run ends or waits for something named, and the order does not matter.

Every step is decided twice, by the state held and by one that is folded from the journal, and every invariant is checked
after it; see tests/support/core_run.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from stepgraph.v1 import event_pb2, run_pb2
from stepgraph_server.core.inputs import Cancel, GoOn, RunLimits, Start, TimePassed
from stepgraph_server.core.run import fold
from stepgraph_server.core.state import RULES_VERSION
from tests.support.core_graphs import graphs
from tests.support.core_player import Player, result_of
from tests.support.core_run import RUN_ID

if TYPE_CHECKING:
    from stepgraph_server.core.graph import CompiledGraph

SEEDS = st.integers(0, 2**32)


@given(graphs(), SEEDS, st.integers(1, 3))
def test_a_run_ends_whatever_executors_and_people_do(
    graph: CompiledGraph, seed: int, room: int
) -> None:
    Player(graph, seed, seed, room=room).play()


@given(graphs(), SEEDS, SEEDS, SEEDS)
def test_the_order_in_which_nodes_end_does_not_matter(
    graph: CompiledGraph, seed: int, one: int, other: int
) -> None:
    """I9, where nothing ends the run at once: there the first cause decides, and who is first is the order."""
    first = Player(graph, seed, one, room=9, faulty=False).play()
    second = Player(graph, seed, other, room=1, faulty=False).play()
    assert (first.status == run_pb2.RUN_STATUS_COMPLETED) == (
        second.status == run_pb2.RUN_STATUS_COMPLETED
    )
    if first.status == run_pb2.RUN_STATUS_COMPLETED:
        assert result_of(first) == result_of(second)


@given(graphs(), SEEDS, SEEDS, st.sampled_from(["work", "bytes"]))
def test_where_decisions_yield_does_not_matter(
    graph: CompiledGraph, seed: int, order: int, what: str
) -> None:
    """Whatever happens between two turns of a run: results, answers, a restart."""
    limits = RunLimits(**{f"max_{what}_per_decision": 1 if what == "work" else 1_000})
    first = Player(graph, seed, order, room=9, faulty=False).play()
    second = Player(graph, seed, order, room=9, faulty=False, limits=limits).play()
    assert (first.status == run_pb2.RUN_STATUS_COMPLETED) == (
        second.status == run_pb2.RUN_STATUS_COMPLETED
    )
    if first.status == run_pb2.RUN_STATUS_COMPLETED:
        assert result_of(first) == result_of(second)


@given(graphs(), SEEDS, st.integers(1, 40))
@settings(max_examples=50)
def test_a_cancelled_run_ends_whenever_it_is_cancelled(
    graph: CompiledGraph, seed: int, steps: int
) -> None:
    player = Player(graph, seed, seed, room=2)
    started = event_pb2.RunStarted(run_id=RUN_ID, rules_version=RULES_VERSION, max_iterations=12)
    player.run.happen(Start(started=started))
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


@given(graphs(), SEEDS)
@settings(max_examples=50)
def test_every_prefix_that_ends_a_decision_folds_and_goes_on(
    graph: CompiledGraph, seed: int
) -> None:
    """A restart after any step, with all notes lost, decides nothing by itself: what was decided stays decided."""
    player = Player(graph, seed, seed, room=2)
    started = event_pb2.RunStarted(run_id=RUN_ID, rules_version=RULES_VERSION, max_iterations=12)
    player.run.happen(Start(started=started))
    while not player.run.state.final:
        player.run.restart()
        assert not player.run.happen(GoOn()).events
        player.step()
    assert fold(RUN_ID, graph, player.run.events).status == player.run.state.status
