"""Waiting in the middle of an action: for a person, another system or a signal. The answer is a result like any other.

Rules: what is waited for is an interrupt, as a node's question is, so it is listed, answered by its id and closed like one. Its
answer is a value or a failure; it leaves nothing in the state by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2, interrupt_pb2, transition_pb2
from stepgraph_server.core import json_text, schemas, signals
from stepgraph_server.core.errors import Violation
from stepgraph_server.core.instants import after, from_duration, to_timestamp
from stepgraph_server.core.interrupt_ids import interrupt_id
from stepgraph_server.core.state import Phase
from stepgraph_server.core.state_checks import check_failure
from stepgraph_server.core.values import ValueNotReadable, check_value, to_json

if TYPE_CHECKING:
    from stepgraph.v1 import value_pb2
    from stepgraph_server.core.state import Activation, Question
    from stepgraph_server.core.turn import Turn


def suspend(turn: Turn, activation: Activation, wanted: transition_pb2.Transition.Suspend) -> None:
    """Open what an action waits for. Its answer is the action's one result of the turn."""
    state = turn.state
    sequence = state.sequence + 1
    interrupt = interrupt_pb2.Interrupt(
        interrupt_id=interrupt_id(state.run_id, sequence),
        run_id=state.run_id,
        root_run_id=state.root_run_id,
        activation_id=activation.id,
        node_id=activation.node.id,
        reason=wanted.reason,
        answer_schema=wanted.reason.human.json_schema,
        takes_reply=not wanted.reason.HasField("signal"),
        opened_sequence=sequence,
        open_time=to_timestamp(turn.now),
        status=interrupt_pb2.INTERRUPT_STATUS_OPEN,
    )
    if wanted.HasField("timeout"):
        deadline = after(turn.now, from_duration(wanted.timeout))
        interrupt.deadline_time.CopyFrom(to_timestamp(deadline))
        if wanted.HasField("default_answer"):
            interrupt.default_answer.reply.value.CopyFrom(wanted.default_answer)
    turn.emit("interrupt_opened", event_pb2.InterruptOpened(question=interrupt))
    if wanted.reason.HasField("signal"):
        # It may have come before anyone waited for it.
        signals.serve(turn)


def is_suspension(activation: Activation, question: interrupt_pb2.Interrupt) -> bool:
    """Whether a question is asked in the middle of an action, not before it."""
    if question.task_id:
        # The approval of a tool: the action goes on meanwhile.
        return False
    return activation.program is not None or question.reason.HasField("signal")


def resume(
    activation: Activation, question: Question, answer: interrupt_pb2.InterruptAnswer
) -> None:
    """Give an action what it waited for."""
    activation.phase = Phase.RUNNING
    program = activation.program
    if program is None:
        activation.turn += 1
        # It performs no call.
        activation.results, activation.call_ids = [answer], [""]
    else:
        kind = question.interrupt.reason.WhichOneof("kind")
        program.end(program.turn, 0, f"suspend {kind}", answer)


def check_answer(
    question: interrupt_pb2.Interrupt, answer: interrupt_pb2.InterruptAnswer
) -> Violation | None:
    """Return why an answer does not fit what an action waits for, or None."""
    if question.reason.HasField("signal"):
        message = f"it waits for the signal {question.reason.signal.name!r}; send that to the run"
        return Violation(path="answer", message=message)
    match answer.WhichOneof("kind"):
        case "reply":
            return check_reply(question.answer_schema, answer.reply.value, "answer.reply.value")
        case "failed":
            return next(iter(check_failure(answer.failed.failure, "answer.failed.failure")), None)
        case None:
            message = "no variant is set that this server knows"
            return Violation(path="answer", message=message, reason="UNKNOWN_VARIANT")
        case kind:
            message = (
                f"a step program waits for a value; answer with reply or failed, not with {kind}"
            )
            return Violation(path=f"answer.{kind}", message=message)


def check_reply(schema: str, value: value_pb2.Value, path: str) -> Violation | None:
    """Return why a value can't be the answer to a question with this schema, or None. Absent means empty."""
    if value.WhichOneof("kind") is not None:
        violations = check_value(value, path)
        if violations:
            return violations[0]
    if not schema:
        return None
    try:
        tree = to_json(value, name="the answer")
    except (ValueNotReadable, json_text.JsonTextError) as error:
        return Violation(path=path, message=f"the question's schema can't be checked: {error}")
    problem = schemas.check(schema, tree)
    if problem is None:
        return None
    return Violation(path=path, message=f"it breaks the question's schema: {problem}")


__all__ = ["check_answer", "check_reply", "is_suspension", "resume", "suspend"]
