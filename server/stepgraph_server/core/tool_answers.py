"""What follows from the answer to a tool's approval, or from none in time.

Rules: a yes hands the task out; a no is the call's result, which the model reads, and an Abort ends the run besides, whatever the edges.
All of it stands in the same append as the answer. Nothing is written to the state: `_approval` and its like are of nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph_server.core import approvals, lifecycle, tasks
from stepgraph_server.core.actions.messages import refused_call
from stepgraph_server.core.failures import failure

if TYPE_CHECKING:
    from stepgraph.v1 import failure_pb2, interrupt_pb2
    from stepgraph_server.core.state import Question, Task
    from stepgraph_server.core.turn import Turn


def carry_out(turn: Turn, question: Question) -> None:
    """Do what an answer says that has just been recorded."""
    answer = question.answer
    assert answer is not None
    task = turn.state.tasks[question.interrupt.task_id]
    match answer.WhichOneof("kind"):
        case "revise":
            _refuse(turn, task, answer)
        case "abort":
            _refuse(turn, task, answer)
            lifecycle.cancel(turn, _aborted(task, answer), node_id=task.activation.node.id)
        case _:
            if not task.held:
                tasks.assign(turn, task)


def _refuse(turn: Turn, task: Task, answer: interrupt_pb2.InterruptAnswer) -> None:
    event = turn.next_event()
    fact = event.task_completed
    fact.task_id, fact.call_id = task.id, task.call_id
    fact.result.CopyFrom(refused_call(approvals.refusal_text(answer)))
    tasks.end(turn, task, event)


def _aborted(task: Task, answer: interrupt_pb2.InterruptAnswer) -> failure_pb2.Failure:
    said = answer.abort.reason
    node = task.activation.node.id
    message = f"{node!r}: a person aborted at the call of {task.key[1]}" + (
        f": {said}" if said else ""
    )
    return failure("ABORTED_BY_PERSON", message, source=node)


def expire(turn: Turn, question: Question, patience: str) -> None:
    """Fail the task of a question that nobody has answered in time; its closing has been recorded."""
    task = turn.state.tasks[question.interrupt.task_id]
    name = question.interrupt.tool.tool_name
    message = (
        f"nobody approved the call of {name} within {patience}, and there is no default answer"
    )
    details = {"interrupt_id": question.interrupt.interrupt_id, "limit": patience}
    why = failure("INTERRUPT_DEADLINE", message, source=task.id, details=details)
    tasks.fail_attempt(turn, task, why, for_good=True)


__all__ = ["carry_out", "expire"]
