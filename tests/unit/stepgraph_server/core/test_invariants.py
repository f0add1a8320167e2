"""The invariants find what is broken, and nothing in a run that is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stepgraph.v1 import event_pb2, run_pb2
from stepgraph_server.core.inputs import Cancel
from stepgraph_server.core.invariants import check, difference, outstanding
from stepgraph_server.core.run import fold
from stepgraph_server.core.state import Phase
from tests.support.core_pieces import compiled, started, text
from tests.support.core_run import RUN_ID, PlayedRun

if TYPE_CHECKING:
    from collections.abc import Callable

GRAPH = compiled(
    """
start: s
nodes:
  - {id: s, assign: {}}
  - {id: a, tool_call: {tool_name: t, args_template: "{}"}}
  - {id: h, human_approval: H?}
edges: [{from: s, to: a}, {from: s, to: h}]
"""
)


def broken(run: PlayedRun) -> set[str]:
    return {line.split(":")[0] for line in check(run.state, run.events)}


def cancelled() -> PlayedRun:
    run = started(compiled("nodes: [{id: a, human_approval: A?}]"))
    run.happen(Cancel(reason="enough"))
    return run


def test_a_whole_run_breaks_nothing() -> None:
    for run in (started(GRAPH), cancelled()):
        assert check(run.state, run.events) == []


def renumber(run: PlayedRun) -> None:
    run.events[1].sequence = 7


def forget(run: PlayedRun) -> None:
    run.state.variables["x"] = text("made up")


def end_early(run: PlayedRun) -> None:
    run.state.finish(run_pb2.RUN_STATUS_COMPLETED)


def lose_a_task(run: PlayedRun) -> None:
    run.state.tasks.clear()


def lose_a_question(run: PlayedRun) -> None:
    next(iter(run.state.questions.values())).open = False


def forget_the_time(run: PlayedRun) -> None:
    run.state.due = type(run.state.due)()


def unknown(run: PlayedRun) -> None:
    run.events.append(event_pb2.RunEvent(sequence=len(run.events) + 1))


def answer_twice(run: PlayedRun) -> None:
    fact = event_pb2.InterruptAnswered(interrupt_id="q-1")
    run.events.append(event_pb2.RunEvent(sequence=len(run.events) + 1, interrupt_answered=fact))


def end_twice(run: PlayedRun) -> None:
    for _ in range(2):
        fact = event_pb2.TaskCompleted(task_id="2/a/t0/e0")
        run.events.append(event_pb2.RunEvent(sequence=len(run.events) + 1, task_completed=fact))


def show_another_status(run: PlayedRun) -> None:
    run.state.status = run_pb2.RUN_STATUS_SUSPENDED


def wait_for_nothing(run: PlayedRun) -> None:
    run.state.tasks.clear()
    run.state.open_questions = 0
    run.state.activations["2/a"].phase = Phase.RUNNING


@pytest.mark.parametrize(
    ("harm", "name"),
    [
        (renumber, "I1"),
        (forget, "I2"),
        (unknown, "I2"),
        (end_early, "I3"),
        (end_twice, "I4"),
        (lose_a_task, "I5"),
        (lose_a_question, "I5"),
        (forget_the_time, "I5 in time"),
        (unknown, "I8"),
        (answer_twice, "I10"),
        (show_another_status, "status"),
        (wait_for_nothing, "rest"),
    ],
)
def test_harm_is_found(harm: Callable[[PlayedRun], None], name: str) -> None:
    run = started(GRAPH)
    harm(run)
    assert name in broken(run)


def test_nothing_may_follow_a_terminal_event() -> None:
    run = cancelled()
    unknown(run)
    assert "I3" in broken(run)


def test_a_run_at_its_barrier_has_yielded() -> None:
    run = started(GRAPH)
    run.state.tasks.clear()
    run.state.open_questions = 0
    for activation in run.state.activations.values():
        activation.phase = Phase.ENDED
    assert "rest" not in broken(run)


def test_what_is_outstanding_is_the_same_after_a_fold() -> None:
    run = started(GRAPH)
    waits = outstanding(run.state)
    assert waits.assigned == (("2/a/t0/e0", 1),)
    assert len(waits.questions) == 1
    assert outstanding(fold(RUN_ID, GRAPH, run.events)) == waits
    assert outstanding(cancelled().state).due is None


def test_states_differ_where_their_parts_do() -> None:
    one, other = started(GRAPH).state, started(GRAPH).state
    assert difference(one, other) == []
    other.tasks["2/a/t0/e0"].tries = 1
    other.activations["2/a"].results = []
    other.variables["x"] = text("y")
    assert len(difference(one, other)) == 3


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("child_started", "can't begin"),
        ("child_status_changed", "there is no such child"),
    ],
)
def test_what_is_said_of_a_child_that_is_not_there_is_found(kind: str, said: str) -> None:
    """I11: a child begins once, and nothing is said of one that did not."""
    run = started(GRAPH)
    event = event_pb2.RunEvent(sequence=99)
    getattr(event, kind).task_id = "1/a/t0/e0"
    assert any(said in line for line in check(run.state, [*run.events, event]))


def test_a_run_that_ends_before_its_child_is_found() -> None:
    """I11: a parent's end is behind all its children's."""
    run = started(GRAPH)
    scheduled = event_pb2.RunEvent(sequence=98)
    scheduled.task_scheduled.task_id = "1/a/t0/e9"
    scheduled.task_scheduled.child_run_id = "c"
    ended = event_pb2.RunEvent(sequence=99)
    ended.run_completed.result.name = "g"
    lines = check(run.state, [*run.events, scheduled, ended])
    assert any("it ends before 1/a/t0/e9" in line for line in lines)


def test_children_and_sleeps_that_are_miscounted_are_found() -> None:
    """They are counted, so that nobody has to look at all tasks."""
    run = started(GRAPH)
    run.state.children, run.state.sleeping = 1, 2
    lines = check(run.state, run.events)
    assert any("0 children, 0 waiting, not 1 and 0" in line for line in lines)
    assert any("0 tasks sleep, not 2" in line for line in lines)
