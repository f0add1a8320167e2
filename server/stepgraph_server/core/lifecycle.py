"""How a run ends: completed, failed or cancelled, at once or once its live attempts have reported.

Rules: terminal is terminal. The first cause decides, later ones are not even recorded. While a run is STOPPING nothing
starts; what executors still report is recorded and not routed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph.v1 import event_pb2, run_pb2, state_pb2
from stepgraph_server.core import unanswered_calls
from stepgraph_server.core.failures import failure
from stepgraph_server.core.inputs import Cancel
from stepgraph_server.core.instants import after, from_timestamp, to_timestamp
from stepgraph_server.core.merge import (
    conflict,
    last_carried,
    merge_ended,
    note_calls,
    went_on,
)
from stepgraph_server.core.state import Activation, Outcome, Phase, RunState, Stopping, TaskStatus
from stepgraph_server.core.tasks import end_cancelled, stop_attempt, tell_child

if TYPE_CHECKING:
    from stepgraph.v1 import failure_pb2
    from stepgraph_server.core.turn import Turn

GRACE_KEY = "grace"

#: Whoever has these is told to stop, and is waited for.
_LIVE: Final = (TaskStatus.ASSIGNED, TaskStatus.CHILD)


def complete(
    turn: Turn, stop_reason: state_pb2.StopReason.ValueType, terminal_node: str = ""
) -> None:
    """End the run well."""
    result = _result(turn.state)
    result.completed = bool(terminal_node)
    result.terminal_node = terminal_node
    result.stop_reason = stop_reason
    output = last_carried(turn.state).last_result
    if output is not None:
        result.output.CopyFrom(output)
    turn.emit("run_completed", event_pb2.RunCompleted(result=result))


def _result(state: RunState) -> state_pb2.GraphExecutionResult:
    return state_pb2.GraphExecutionResult(
        name=state.graph.name,
        iterations=state.iterations,
        interrupt_checkpoints=state.interrupt_points,
    )


def fail(turn: Turn, why: failure_pb2.Failure, *, node_id: str = "") -> None:
    """End the run FAILED. `node_id` is the node whose failure it is, if it is one's."""
    _stop(turn, run_pb2.RUN_STATUS_FAILED, why, node_id)


def cancel(turn: Turn, why: failure_pb2.Failure, *, node_id: str = "") -> None:
    """End the run CANCELLED."""
    _stop(turn, run_pb2.RUN_STATUS_CANCELLED, why, node_id)


def cancelled(reason: str) -> failure_pb2.Failure:
    """Return the failure of a run that somebody cancelled."""
    return failure("CANCELLED", reason or "cancelled on request")


def _stop(
    turn: Turn, outcome: run_pb2.RunStatus.ValueType, why: failure_pb2.Failure, node_id: str
) -> None:
    state = turn.state
    if state.stopping is not None or state.final:
        return
    turn.agenda.clear()
    live = [task for task in state.tasks.values() if task.status in _LIVE]
    if live:
        grace = after(turn.now, turn.world.limits.cancel_grace)
        turn.emit(
            "run_stopping",
            event_pb2.RunStopping(outcome=outcome, failure=why, grace_time=to_timestamp(grace)),
        )
    else:
        # Nothing has to be waited for, so the stop needs no event of its own; it is over with this decision.
        state.stopping = Stopping(outcome=outcome, failure=why, grace_at=turn.now, node_id=node_id)
    assert state.stopping is not None
    reason = state.stopping.reason
    _close_questions(turn, reason)
    for task in list(state.tasks.values()):
        if task.status not in _LIVE:
            end_cancelled(turn, task, event_pb2.TaskCancelled(task_id=task.id, reason=reason))
    for task in live:
        if task.status is TaskStatus.CHILD:
            tell_child(turn, task, Cancel(reason=why.message))
        else:
            stop_attempt(turn, task, why.message)
    advance_stop(turn)


def _close_questions(turn: Turn, reason: str) -> None:
    for interrupt_id, question in turn.state.questions.items():
        if question.open:
            turn.emit(
                "interrupt_closed",
                event_pb2.InterruptClosed(interrupt_id=interrupt_id, reason=reason),
            )


def advance_stop(turn: Turn) -> None:
    """End nodes that have nothing live any more; end the run once no node has."""
    state = turn.state
    stopping = state.stopping
    if stopping is None or state.final:
        return
    for activation in list(state.activations.values()):
        if activation.phase is not Phase.ENDED and activation.outstanding == 0:
            turn.emit(
                "node_cancelled",
                event_pb2.NodeCancelled(
                    activation_id=activation.id,
                    node_id=activation.node.id,
                    reason=stopping.reason,
                ),
            )
    if state.tasks:
        return
    result = _result(state)
    if stopping.outcome == run_pb2.RUN_STATUS_FAILED:
        turn.emit("run_failed", event_pb2.RunFailed(failure=stopping.failure, result=result))
    else:
        turn.emit("run_cancelled", event_pb2.RunCancelled(failure=stopping.failure, result=result))


def on_grace_over(turn: Turn) -> None:
    """End the attempts that did not report in time, and with them the run."""
    state = turn.state
    if state.stopping is None or turn.now < state.stopping.grace_at:
        return
    for task in list(state.tasks.values()):
        if task.status is TaskStatus.CHILD:
            # It has a grace of its own, and its parent's end comes after its.
            continue
        fact = event_pb2.TaskCancelled(
            task_id=task.id, attempt=task.attempt, reason=state.stopping.reason
        )
        end_cancelled(turn, task, fact)
    advance_stop(turn)


# Facts


def apply_run_stopping(state: RunState, event: event_pb2.RunEvent) -> None:
    """The run ends as soon as it can."""
    fact = event.run_stopping
    grace_at = from_timestamp(fact.grace_time)
    state.stopping = Stopping(
        outcome=fact.outcome,
        failure=fact.failure,
        grace_at=grace_at,
        node_id=_stopped_by(state, fact.failure),
    )
    state.due.arm(grace_at, GRACE_KEY)
    # What is about to end is not held up any more.
    state.paused = False


def _stopped_by(state: RunState, why: failure_pb2.Failure) -> str:
    """Return the node whose end stops the run; empty if it is stopped by something else."""
    for activation in state.activations.values():
        if activation.outcome is Outcome.FAILED and not went_on(activation):
            return activation.node.id
    # The node ended well then, but the run can't go on from it.
    return why.source if why.code in ("DEAD_END", "ABORTED_BY_PERSON") else ""


def apply_run_ended(state: RunState, event: event_pb2.RunEvent) -> None:
    """The run is final; what completed nodes wrote is merged."""
    match event.WhichOneof("kind"):
        case "run_completed":
            state.finish(run_pb2.RUN_STATUS_COMPLETED)
            state.result = event.run_completed.result
        case "run_failed":
            state.finish(run_pb2.RUN_STATUS_FAILED)
            state.result, state.failure = event.run_failed.result, event.run_failed.failure
        case _:
            state.finish(run_pb2.RUN_STATUS_CANCELLED)
            state.result, state.failure = event.run_cancelled.result, event.run_cancelled.failure
    state.ended_at = state.updated_at
    if conflict(state) is None:
        merge_ended(state)
    state.stopping = None
    state.activations = {}
    state.spawned = {}
    state.tasks = {}
    state.sleeping = state.children = state.waiting_children = 0
    state.arrivals = {}


def apply_node_cancelled(state: RunState, event: event_pb2.RunEvent) -> None:
    """The node was stopped; what it wrote counts only if its action had ended well before."""
    fact = event.node_cancelled
    activation = state.activations[fact.activation_id]
    if not activation.acted:
        # Nothing of it is merged.
        note_calls(state, unanswered_calls.after_stop(activation, fact.reason))
    end(activation, Outcome.CANCELLED)


def end(activation: Activation, outcome: Outcome) -> None:
    """The activation has ended."""
    activation.phase = Phase.ENDED
    activation.outcome = outcome
