"""What executors report of attempts, and the verdict on each.

Rules: a result counts for the current attempt of the instance that has it. Everything else is stale and changes nothing;
of what was recorded before, the executor learns whether it is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph.v1 import event_pb2, executor_service_pb2, task_pb2
from stepgraph_server.core.failures import failure
from stepgraph_server.core.inputs import AttemptOver
from stepgraph_server.core.instants import from_duration
from stepgraph_server.core.results import accept_result, same_result, value_missing
from stepgraph_server.core.state import TaskStatus
from stepgraph_server.core.state_checks import trim_failure
from stepgraph_server.core.step_replies import accept_reply
from stepgraph_server.core.tasks import end, end_cancelled, fail_attempt

if TYPE_CHECKING:
    from stepgraph_server.core.inputs import Outcomes
    from stepgraph_server.core.state import RunState, Task
    from stepgraph_server.core.turn import Turn

ACCEPTED: Final = executor_service_pb2.ACK_VERDICT_ACCEPTED
DUPLICATE: Final = executor_service_pb2.ACK_VERDICT_DUPLICATE
STALE: Final = executor_service_pb2.ACK_VERDICT_STALE
CONFLICT: Final = executor_service_pb2.ACK_VERDICT_CONFLICT


def on_outcomes(turn: Turn, report: Outcomes) -> None:
    """Take the outcomes of one frame; each gets its verdict."""
    for index, (task_id, outcome) in enumerate(report.outcomes):
        verdict = _on_outcome(turn, report, task_id, outcome, index)
        turn.acks.append((outcome.task_id, outcome.attempt, verdict))


def _on_outcome(
    turn: Turn,
    report: Outcomes,
    task_id: str,
    outcome: executor_service_pb2.AttemptOutcome,
    index: int,
) -> executor_service_pb2.AckVerdict.ValueType:
    task = turn.state.tasks.get(task_id)
    if (
        task is None
        or task.status is not TaskStatus.ASSIGNED
        or task.attempt != outcome.attempt
        or task.instance != report.instance
    ):
        return _verdict_on_old(turn.state, task_id, outcome)
    match outcome.WhichOneof("outcome"):
        case "succeeded":
            _on_success(turn, task, outcome.succeeded, report, index)
        case "failed":
            failed = outcome.failed
            wait = from_duration(failed.retry_after) if failed.HasField("retry_after") else None
            why = trim_failure(failed.failure)
            fail_attempt(turn, task, why, usage=failed.usage, retry_after=wait)
        case "cancelled":
            _on_cancelled(turn, task, outcome.cancelled)
        case None:
            # The session refuses an outcome without a variant before it comes here.
            return STALE
    return ACCEPTED


def _verdict_on_old(
    state: RunState, task_id: str, outcome: executor_service_pb2.AttemptOutcome
) -> executor_service_pb2.AckVerdict.ValueType:
    """Tell a result that was recorded before from one that came too late."""
    recorded = state.remembered.get(task_id)
    if (
        recorded is None
        or recorded[0] != outcome.attempt
        or outcome.WhichOneof("outcome") != "succeeded"
    ):
        return STALE
    return DUPLICATE if same_result(outcome.succeeded, recorded[1]) else CONFLICT


def _on_success(
    turn: Turn, task: Task, result: task_pb2.TaskResult, report: Outcomes, index: int
) -> None:
    event = turn.next_event()
    fact = event.task_completed
    fact.task_id = task.id
    fact.attempt = task.attempt
    # The executor's frame stays as it is; what is recorded may differ, by the ids of calls.
    fact.result.CopyFrom(result)
    missing = report.missing.get(index, "")
    problem = (
        value_missing(task, missing)
        if missing
        else accept_result(task, fact.result, turn.world.limits)
    )
    if problem is None and task.poll:
        taken = index in report.taken
        problem = accept_reply(turn.state, task, fact.result.step, turn.world.limits, taken=taken)
    if problem is not None:
        usage = result.llm.usage if result.HasField("llm") else result.agent.usage
        fail_attempt(turn, task, problem, usage=usage)
        return
    turn.command(AttemptOver(task.id, task.attempt, task.instance, discarded=False))
    end(turn, task, event)


def _on_cancelled(
    turn: Turn, task: Task, cancelled: executor_service_pb2.AttemptOutcome.Cancelled
) -> None:
    if turn.state.stopping is None:
        # Nobody asked for that. The work was not done, so it counts as a failed try.
        message = f"executor {task.executor_id} gave the attempt up"
        why = failure("EXECUTOR_CANCELLED", message, source=task.executor_id)
        fail_attempt(turn, task, why, usage=cancelled.usage)
        return
    fact = event_pb2.TaskCancelled(
        task_id=task.id,
        attempt=task.attempt,
        reason=turn.state.stopping.reason,
        acknowledged=True,
    )
    if cancelled.HasField("partial"):
        fact.partial.CopyFrom(cancelled.partial)
    if cancelled.HasField("usage"):
        fact.usage.CopyFrom(cancelled.usage)
    end_cancelled(turn, task, fact)
