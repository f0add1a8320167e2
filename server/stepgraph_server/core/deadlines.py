"""Questions that nobody answers in time: the default is the answer, or the node, or the call that nobody approved, fails.

Rules: the time is the one that was set when the question opened, and it is acted on once. An answer that comes in the same instant
wins if it is in front.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2
from stepgraph_server.core import interrupts, steps, tool_answers
from stepgraph_server.core.failures import failure
from stepgraph_server.core.instants import Span, from_timestamp, seconds_text

if TYPE_CHECKING:
    from stepgraph.v1 import failure_pb2
    from stepgraph_server.core.state import Question
    from stepgraph_server.core.turn import Turn


def on_deadline(turn: Turn, interrupt_id: str) -> None:
    """Do what is to be done about a question whose time may be over."""
    state = turn.state
    question = state.questions.get(interrupt_id)
    if question is None or not question.open or state.stopping is not None:
        return
    interrupt = question.interrupt
    if turn.now < from_timestamp(interrupt.deadline_time):
        return
    activation = interrupts.activation_of(state, interrupt)
    if interrupt.HasField("default_answer"):
        fact = event_pb2.InterruptAnswered(
            interrupt_id=interrupt_id, answer=interrupt.default_answer, by_deadline=True
        )
        turn.emit("interrupt_answered", fact)
        interrupts.follow(turn, question)
        return
    turn.emit(
        "interrupt_closed",
        event_pb2.InterruptClosed(interrupt_id=interrupt_id, reason="its deadline has passed"),
    )
    if interrupt.task_id:
        tool_answers.expire(turn, question, _patience(question))
        return
    if interrupt.reason.HasField("signal"):
        steps.fail_node(turn, activation, _no_signal(question, activation.node.id))
        return
    message = f"nobody answered {activation.node.id!r} within {_patience(question)}, and there is no default answer"
    details = {"interrupt_id": interrupt_id, "limit": _patience(question)}
    why = failure("INTERRUPT_DEADLINE", message, source=activation.node.id, details=details)
    steps.fail_node(turn, activation, why)


def _no_signal(question: Question, node_id: str) -> failure_pb2.Failure:
    wanted = question.interrupt.reason.signal
    which = f"the signal {wanted.name!r}"
    if wanted.correlation:
        which += f" with the correlation {wanted.correlation!r}"
    many = f"{wanted.count} times " if wanted.count > 1 else ""
    message = f"{which} did not come {many}within {_patience(question)}"
    details = {"signal": wanted.name, "limit": _patience(question)}
    return failure("SIGNAL_TIMEOUT", message, source=node_id, details=details)


def _patience(question: Question) -> str:
    interrupt = question.interrupt
    span = from_timestamp(interrupt.deadline_time) - from_timestamp(interrupt.open_time)
    return seconds_text(Span(span))


__all__ = ["on_deadline"]
