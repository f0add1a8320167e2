"""Calls that a node leaves without a result, and what the model reads in place of one.

Rules: a model must never read "not run" of a call that a person refused, that failed or that was stopped. What is said follows from the
answer, the failure and the results that are recorded. A call that a person refused is performed by nobody any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import failure_pb2, task_pb2
from stepgraph_server.core import approvals
from stepgraph_server.core.actions.calls import settled_decision
from stepgraph_server.core.actions.messages import failure_text
from stepgraph_server.core.actions.step import Done
from stepgraph_server.core.preparing import poll_of
from stepgraph_server.core.state import CallNote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepgraph_server.core.state import Activation, RunState
    from stepgraph_server.core.step_program import Ended


def refused(state: RunState, activation: Activation) -> Done:
    """Return how a node ends whose question was answered with a no: its action does not run."""
    assert activation.answer is not None
    call_id = state.questions[activation.question_id].interrupt.tool.call_id
    if activation.call is not None:
        call_id = activation.call.id
    if not call_id or activation.parent is not None:
        return Done()
    note = CallNote(call_id, approvals.refusal_text(activation.answer), denied=True)
    decision = settled_decision(poll_of(state, activation, 0, None), performed=[call_id])
    return Done(notes=(note,), decision=decision, decides=True)


def after_failure(activation: Activation, why: failure_pb2.Failure) -> tuple[CallNote, ...]:
    """Return what to say of the calls of a node that has failed."""
    return tuple(_notes(activation, failure_text(why)))


def after_stop(activation: Activation, reason: str) -> tuple[CallNote, ...]:
    """Return what to say of the calls of a node that was stopped."""
    return tuple(_notes(activation, f"Cancelled: {reason}"))


def _notes(activation: Activation, reason: str) -> Iterator[CallNote]:
    if activation.call is not None:
        yield CallNote(activation.call.id, reason, denied=False)
    for call_id, result in zip(activation.call_ids, activation.results, strict=True):
        if call_id:
            yield CallNote(call_id, _text(result, reason), denied=False)


def _text(result: Ended | None, reason: str) -> str:
    if isinstance(result, failure_pb2.Failure):
        return failure_text(result)
    if not isinstance(result, task_pb2.TaskResult):
        return reason
    if result.HasField("tool") and result.tool.is_error and result.tool.output.HasField("text"):
        # It did not work, or a person refused it: then that is all there is to say.
        return result.tool.output.text
    return f"It ran, but its result was not taken over. {reason}"


__all__ = ["after_failure", "after_stop", "refused"]
