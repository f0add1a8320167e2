"""Pausing a run, and letting it go on.

Rules: a paused run goes on recording what comes to it, results and answers, and starts nothing: no attempt is assigned, no
node goes on, no superstep starts, and no time but the run's own limit acts. What it would have done follows from the folded
state, so unpausing needs no notes: nodes are lined up, tasks are handed out, and what was due meanwhile is due then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2
from stepgraph_server.core import steps, tasks
from stepgraph_server.core.inputs import Unpause
from stepgraph_server.core.state import TaskStatus
from stepgraph_server.core.status import is_ending, run_ended

if TYPE_CHECKING:
    from stepgraph_server.core.inputs import Pause
    from stepgraph_server.core.state import RunState
    from stepgraph_server.core.turn import Turn


def on_pause(turn: Turn, happened: Pause) -> None:
    """Pause the run; one that is paused stays as it is. Raises Refused RUN_ENDED for one that has ended, or is about to."""
    if is_ending(turn.state):
        raise run_ended(turn.state, "it can't be paused")
    if not turn.state.paused:
        fact = event_pb2.RunPaused(reason=happened.reason, by_parent=happened.by_parent)
        turn.emit("run_paused", fact)
        tasks.tell_children(turn, tasks.paused_with_parent())


def on_unpause(turn: Turn, happened: Unpause) -> None:
    """Let the run go on; one that is not paused stays as it is. Raises Refused RUN_ENDED."""
    if is_ending(turn.state):
        raise run_ended(turn.state, "it can't be unpaused")
    if not turn.state.paused or (happened.by_parent and not turn.state.paused_by_parent):
        return
    turn.emit("run_unpaused", event_pb2.RunUnpaused())
    tasks.tell_children(turn, Unpause(by_parent=True))
    # Before the nodes: what waited longer comes first.
    for task in list(turn.state.tasks.values()):
        if task.status is TaskStatus.QUEUED and not task.held:
            tasks.assign(turn, task)
    steps.line_up(turn)


# Facts


def apply_run_paused(state: RunState, event: event_pb2.RunEvent) -> None:
    """Nothing starts any more."""
    state.paused = True
    state.paused_by_parent = event.run_paused.by_parent
    for task in state.tasks.values():
        # Whoever keeps those that wait for room forgets them with the same append.
        task.waits = False


def apply_run_unpaused(state: RunState, _: event_pb2.RunEvent) -> None:
    """The run goes on."""
    state.paused = state.paused_by_parent = False
