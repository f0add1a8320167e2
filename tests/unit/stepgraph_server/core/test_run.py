"""The life of a run: what can be folded, what can't, and when it looks at itself again."""

from __future__ import annotations

import pytest

from stepgraph.v1 import event_pb2, run_pb2
from stepgraph_server.core.errors import Quarantined
from stepgraph_server.core.inputs import Cancel, Look, Outcomes, TimePassed
from stepgraph_server.core.run import evolve, fold, new_state, next_due
from stepgraph_server.core.state import RULES_VERSION
from tests.support.core_pieces import compiled, started
from tests.support.core_run import RUN_ID, START

WAITS = compiled("nodes: [{id: a, human_approval: A?}]")
WORKS = compiled('nodes: [{id: a, tool_call: {tool_name: t, args_template: "{}"}}]')


def test_a_run_without_events_can_not_be_folded() -> None:
    with pytest.raises(Quarantined, match="no events"):
        fold(RUN_ID, WAITS, [])


def test_what_stops_a_fold_quarantines_the_run_and_says_where() -> None:
    run = started(WAITS)
    broken = event_pb2.RunEvent(sequence=len(run.events) + 1)
    with pytest.raises(Quarantined, match="kind that this server does not know") as caught:
        fold(RUN_ID, WAITS, [*run.events, broken])
    assert caught.value.last_sequence == len(run.events)


def test_an_event_must_follow_the_one_before() -> None:
    state = new_state(RUN_ID, WAITS, START)
    with pytest.raises(ValueError, match="can't follow"):
        evolve(state, event_pb2.RunEvent(sequence=2, run_started=event_pb2.RunStarted()))


def test_nothing_follows_a_terminal_event() -> None:
    run = started(WAITS)
    run.happen(Cancel(reason=""))
    with pytest.raises(ValueError, match="can't follow"):
        evolve(
            run.state,
            event_pb2.RunEvent(
                sequence=run.state.sequence + 1, limit_neared=event_pb2.LimitNeared()
            ),
        )


def test_rules_of_a_newer_server_are_not_guessed() -> None:
    fact = event_pb2.RunStarted(rules_version=RULES_VERSION + 1)
    with pytest.raises(ValueError, match="rules"):
        evolve(new_state(RUN_ID, WAITS, START), event_pb2.RunEvent(sequence=1, run_started=fact))


def test_a_fold_shows_the_status_that_the_run_had() -> None:
    run = started(WAITS)
    assert fold(RUN_ID, WAITS, run.events).status == run_pb2.RUN_STATUS_SUSPENDED


def test_a_final_run_has_nothing_due_and_no_time_passes_for_it() -> None:
    run = started(WORKS)
    run.happen(Cancel(reason=""))
    run.now = START + 100_000_000
    run.happen(TimePassed())
    assert run.state.final
    assert next_due(run.state) is None


def test_looking_and_stale_reports_decide_nothing() -> None:
    run = started(WORKS)
    assert not run.happen(Look()).events
    assert not run.happen(Outcomes(instance="i1", outcomes=())).events


def test_a_stop_takes_the_time_that_falls_due_with_it() -> None:
    """Once the run has ended, what was due in the same instant is not looked at."""
    graph = compiled(
        """
start: s
nodes:
  - {id: s, assign: {}}
  - {id: a, tool_call: {tool_name: t, args_template: "{}"}, retry: {max_tries: 1}}
  - {id: b, tool_call: {tool_name: t, args_template: "{}"}}
limits: {queue: 1s}
edges: [{from: s, to: a}, {from: s, to: b}]
"""
    )
    from tests.support.core_world import PlayedWorld  # noqa: PLC0415  # an empty world, for this test alone

    run = started(graph, PlayedWorld())
    run.now = START + 1_000_000
    run.happen(TimePassed())
    assert run.state.status == run_pb2.RUN_STATUS_FAILED


def test_a_run_has_what_it_was_started_with() -> None:
    fact = event_pb2.RunStarted(
        rules_version=RULES_VERSION,
        selector={"b": "2", "a": "1"},
        labels={"l": "x"},
        root_run_id="root",
    )
    fact.initial_state.variables["kept"].text = "k"
    fact.initial_state.last_result.text = "before"
    fact.initial_state.metadata["m"] = "n"
    fact.input.value.text = "in"
    state = new_state(RUN_ID, WAITS, START)
    evolve(state, event_pb2.RunEvent(sequence=1, run_started=fact))
    assert state.selector == (("a", "1"), ("b", "2"))
    assert set(state.variables) == {"kept", "input"}
    assert state.carried.last_result == fact.input.value
    assert (state.root_run_id, state.metadata) == ("root", {"m": "n"})
