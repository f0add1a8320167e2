"""Tasks: notes of executors, and what is not due."""

from __future__ import annotations

from stepgraph.v1 import event_pb2
from stepgraph_server.core.inputs import AttemptRef, AttemptsLost, RoomFound, TimePassed
from stepgraph_server.core.instants import SECOND
from stepgraph_server.core.state import TaskStatus
from stepgraph_server.core.tasks import due_at, note_accepted, note_progress
from tests.support.core_pieces import compiled, started
from tests.support.core_run import START
from tests.support.core_world import PlayedWorld

TASK = "1/a/t0/e0"
TOOL = compiled('nodes: [{id: a, tool_call: {tool_name: t, args_template: "{}"}}]')
ENDLESS = compiled(
    """
nodes:
  - id: a
    tool_call: {tool_name: t, args_template: "{}"}
    limits: {queue: 0s, accept: 0s, run: 0s, idle: 0s, total: 0s}
"""
)
OLD = AttemptRef(task_id=TASK, attempt=9)
CURRENT = AttemptRef(task_id=TASK, attempt=1)
GONE = AttemptRef(task_id="9/x/t0/e0", attempt=1)


def test_only_the_current_attempt_can_be_accepted_or_show_progress() -> None:
    run = started(TOOL)
    for ref in (OLD, GONE):
        note_accepted(run.state, ref)
        assert not note_progress(run.state, ref, run.now)
    assert not run.state.tasks[TASK].accepted
    assert note_progress(run.state, CURRENT, run.now)
    assert run.state.tasks[TASK].accepted


def test_without_limits_nothing_is_due() -> None:
    run = started(ENDLESS)
    assert due_at(run.state.tasks[TASK]) is None
    waiting = started(ENDLESS, PlayedWorld())
    assert due_at(waiting.state.tasks[TASK]) is None
    assert waiting.events[-1].task_unclaimed.HasField("queue_limit_time") is False


def test_room_is_offered_only_to_tasks_that_wait() -> None:
    run = started(TOOL)
    assert not run.happen(RoomFound(task_ids=(TASK, "nosuch"))).events


def test_an_attempt_that_is_not_there_can_not_be_lost() -> None:
    run = started(TOOL)
    lost = AttemptsLost(attempts=(OLD, GONE), reason=event_pb2.TASK_LOSS_REASON_DISCONNECTED)
    assert not run.happen(lost).events


def test_a_look_too_early_changes_nothing() -> None:
    run = started(TOOL)
    note_accepted(run.state, CURRENT)
    run.now = START + 11 * SECOND
    assert not run.happen(TimePassed()).events
    assert run.state.tasks[TASK].status is TaskStatus.ASSIGNED
