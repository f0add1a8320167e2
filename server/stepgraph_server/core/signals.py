"""Signals: sent to a run, kept until somebody waits for them, each given to one waiter.

Rules: a signal that came is a fact of its own, whoever takes it; what is kept follows from those facts and from the answers that took some of
them. Waiters are served by their task id, signals go in the order in which they came, and a waiter that needs several gets them together or
none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2, interrupt_pb2
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.names import MAX_KEPT_SIGNALS
from stepgraph_server.core.spawning import locate
from stepgraph_server.core.state import KeptSignal
from stepgraph_server.core.status import is_ending, run_ended

if TYPE_CHECKING:
    from stepgraph_server.core.inputs import Signal
    from stepgraph_server.core.state import Question, RunState
    from stepgraph_server.core.turn import Turn


def on_signal(turn: Turn, signal: Signal) -> None:
    """Take a signal, and give it to who waits for it.

    Raises:
        Refused: RUN_ENDED, also for a run that is about to end. LIMIT_EXCEEDED: too many are kept.
    """
    state = turn.state
    if is_ending(state):
        raise run_ended(state, "nothing of it waits for signals any more")
    if len(state.signals) >= MAX_KEPT_SIGNALS:
        message = f"run {state.run_id} keeps {len(state.signals)} signals that nothing has waited for, and more are not kept"
        metadata = {
            "limit_name": "signals",
            "limit": str(MAX_KEPT_SIGNALS),
            "actual": str(len(state.signals)),
        }
        raise Refused("LIMIT_EXCEEDED", message, metadata=metadata)
    fact = event_pb2.SignalReceived(name=signal.name, correlation=signal.correlation)
    if signal.payload is not None:
        fact.payload.CopyFrom(signal.payload)
    turn.emit("signal_received", fact)
    serve(turn)


def serve(turn: Turn) -> None:
    """Give signals that are kept to those who wait."""
    state = turn.state
    if not state.signals:
        return
    waiting = [
        question
        for question in state.questions.values()
        if question.open and question.interrupt.reason.HasField("signal")
    ]
    for question in sorted(waiting, key=lambda each: each.interrupt.activation_id):
        taken = _matching(state, question)
        if taken is None:
            continue
        answer = interrupt_pb2.InterruptAnswer()
        answer.signals.payloads.extend([state.signals[place].payload for place in taken])
        interrupt = question.interrupt
        turn.emit(
            "interrupt_answered",
            event_pb2.InterruptAnswered(interrupt_id=interrupt.interrupt_id, answer=answer),
        )
        turn.agenda.append(locate(state, interrupt.activation_id))


def _matching(state: RunState, question: Question) -> list[int] | None:
    """Return the places of the signals that a waiter gets; None if there are not enough."""
    wanted = question.interrupt.reason.signal
    count = wanted.count or 1
    places = [
        place
        for place, kept in enumerate(state.signals)
        if kept.name == wanted.name and wanted.correlation in ("", kept.correlation)
    ]
    return places[:count] if len(places) >= count else None


# Facts


def apply_signal_received(state: RunState, event: event_pb2.RunEvent) -> None:
    """A signal is kept until it is taken."""
    fact = event.signal_received
    state.signals.append(KeptSignal(fact.name, fact.correlation, fact.payload))


def take(state: RunState, question: Question) -> None:
    """A waiter has got its signals, so they are not kept any more."""
    taken = _matching(state, question)
    assert taken is not None, "its answer was made of signals that are kept"
    for place in reversed(taken):
        del state.signals[place]
