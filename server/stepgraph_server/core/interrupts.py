"""Questions that a run waits on: asked, answered, closed.

Rules: of several answers the first wins, and the same one again is fine; an answer that does not fit is refused and the
question stays open. A question opens before the action of its node runs, and its answer decides whether that runs at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph.v1 import event_pb2, graph_pb2, interrupt_pb2
from stepgraph_server.core import (
    canonical,
    schemas,
    signals,
    spawning,
    suspending,
    tasks,
    tool_answers,
    tool_approvals,
)
from stepgraph_server.core.actions.step import MAX_RENDERED_BYTES
from stepgraph_server.core.errors import Refused, Violation
from stepgraph_server.core.instants import (
    Span,
    after,
    from_duration,
    from_timestamp,
    to_timestamp,
)
from stepgraph_server.core.interrupt_ids import interrupt_id
from stepgraph_server.core.state import Phase, Question
from stepgraph_server.core.status import run_ended
from stepgraph_server.core.templates import Template
from stepgraph_server.core.values import ValueNotReadable, check_value, to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepgraph.v1 import value_pb2
    from stepgraph_server.core.inputs import Answer
    from stepgraph_server.core.json_text import JsonValue
    from stepgraph_server.core.state import Activation, RunState
    from stepgraph_server.core.turn import Turn
    from stepgraph_server.core.view import View


#: Keys of DueTimes that stand for a question begin so.
DUE_PREFIX: Final = "question:"


def asks(activation: Activation) -> bool:
    """Whether the node asks a person before it acts."""
    return activation.node.asks


def has_to_ask(activation: Activation) -> bool:
    """Whether the node asks a person, and has not yet."""
    return asks(activation) and not activation.question_id


def ask(
    turn: Turn, activation: Activation, view: View, tool: interrupt_pb2.ToolQuestion | None
) -> None:
    """Open the node's question. Raises RenderError if its description can't be rendered."""
    state = turn.state
    sequence = state.sequence + 1
    node = activation.node
    settings = node.definition.interrupt_options
    options, schema = list(settings.options), settings.answer_schema
    description = settings.description
    if isinstance(node.action, graph_pb2.NodeAction.HumanApproval):
        options = options or list(node.action.options)
        schema = schema or node.action.answer_schema
        description = description or node.action.description
    prompt = Template.compile(description or node.id).render(view, max_bytes=MAX_RENDERED_BYTES)
    interrupt = interrupt_pb2.Interrupt(
        interrupt_id=interrupt_id(state.run_id, sequence),
        run_id=state.run_id,
        root_run_id=state.root_run_id,
        activation_id=activation.id,
        node_id=node.id,
        reason=interrupt_pb2.SuspendReason(
            human=interrupt_pb2.SuspendReason.Human(prompt=prompt, json_schema=schema)
        ),
        options=options,
        answer_schema=schema,
        opened_sequence=sequence,
        open_time=to_timestamp(turn.now),
        status=interrupt_pb2.INTERRUPT_STATUS_OPEN,
        tool=tool,
    )
    if settings.HasField("deadline"):
        deadline = after(turn.now, from_duration(settings.deadline))
        interrupt.deadline_time.CopyFrom(to_timestamp(deadline))
        if settings.HasField("default_answer"):
            interrupt.default_answer.CopyFrom(settings.default_answer)
    turn.emit("interrupt_opened", event_pb2.InterruptOpened(question=interrupt))


def reopen(turn: Turn, question: interrupt_pb2.Interrupt, *, keep_token: bool) -> None:
    """Ask in this run what the run that it was forked from was asking; a deadline is as far away as it was.

    Without its token a question of another system can be answered by its id only.
    """
    state = turn.state
    again = interrupt_pb2.Interrupt()
    again.CopyFrom(question)
    again.opened_sequence = state.sequence + 1
    again.interrupt_id = interrupt_id(state.run_id, again.opened_sequence)
    again.run_id = again.root_run_id = state.run_id
    again.open_time.CopyFrom(to_timestamp(turn.now))
    if again.reason.HasField("external") and not keep_token:
        again.reason.external.token = ""
    if question.HasField("deadline_time"):
        span = from_timestamp(question.deadline_time) - from_timestamp(question.open_time)
        again.deadline_time.CopyFrom(to_timestamp(after(turn.now, Span(span))))
    turn.emit("interrupt_opened", event_pb2.InterruptOpened(question=again))


def activation_of(state: RunState, question: interrupt_pb2.Interrupt) -> Activation:
    """Return the activation that asks."""
    return spawning.locate(state, question.activation_id)


def on_answer(turn: Turn, answer: Answer) -> None:
    """Take an answer. Raises Refused: the question is unknown, closed, answered otherwise, or the answer does not fit."""
    state = turn.state
    question = state.questions.get(answer.interrupt_id)
    if question is None:
        message = f"run {state.run_id} has no interrupt {answer.interrupt_id!r}"
        raise Refused(
            "INTERRUPT_NOT_FOUND", message, metadata={"interrupt_id": answer.interrupt_id}
        )
    if question.answer is not None:
        _again(question, answer)
        return
    if state.final:
        raise run_ended(state, "its questions can't be answered any more")
    if not question.open:
        message = f"the run went on without an answer: {question.close_reason}"
        metadata = {"interrupt_id": answer.interrupt_id, "close_reason": question.close_reason}
        raise Refused("INTERRUPT_CLOSED", message, metadata=metadata)
    problem = problem_with(question, answer.answer)
    if problem is not None:
        metadata = {"interrupt_id": answer.interrupt_id, "field": problem.path}
        raise Refused("ANSWER_INVALID", problem.message, metadata=metadata, violations=[problem])
    turn.emit(
        "interrupt_answered",
        event_pb2.InterruptAnswered(
            interrupt_id=answer.interrupt_id,
            answer=answer.answer,
            answered_by=answer.answered_by,
            traceparent=answer.traceparent,
        ),
    )
    follow(turn, question)


def follow(turn: Turn, question: Question) -> None:
    """Let go on what waits for an answer that has just been recorded."""
    if question.interrupt.task_id:
        tool_answers.carry_out(turn, question)
    else:
        turn.agenda.append(activation_of(turn.state, question.interrupt))


def _again(question: Question, answer: Answer) -> None:
    assert question.answer is not None
    if canonical.digest(question.answer) == canonical.digest(answer.answer):
        return
    kind = question.answer.WhichOneof("kind") or "unknown"
    by = f" by {question.answered_by}" if question.answered_by else ""
    raise Refused(
        "INTERRUPT_ANSWERED",
        f"it was answered before{by}, with {kind}",
        metadata={
            "interrupt_id": question.interrupt.interrupt_id,
            "answered_by": question.answered_by,
            "answer": kind,
        },
    )


def problem_with(question: Question, answer: interrupt_pb2.InterruptAnswer) -> Violation | None:
    """Return why an answer does not fit, whoever asks; or None."""
    if question.interrupt.task_id:
        return tool_approvals.check_answer(question.interrupt, answer)
    check = suspending.check_answer if question.suspends else check_answer
    return check(question.interrupt, answer)


def check_answer(
    question: interrupt_pb2.Interrupt, answer: interrupt_pb2.InterruptAnswer
) -> Violation | None:
    """Return why an answer does not fit its question, or None."""
    match answer.WhichOneof("kind"):
        case "proceed":
            if question.answer_schema:
                message = (
                    "this question asks for values; answer with proceed_with and its variables"
                )
                return Violation(path="answer.proceed", message=message)
            return None
        case "proceed_with":
            return _check_proceed_with(question, answer.proceed_with)
        case "choose":
            ids = [option.id for option in question.options]
            if answer.choose.option_id in ids:
                return None
            offered = f"one of {', '.join(ids)}" if ids else "nothing: the question has no options"
            message = f"{answer.choose.option_id!r} can't be chosen; there is {offered}"
            return Violation(path="answer.choose.option_id", message=message)
        case "revise" | "abort":
            return None
        case "reply" | "failed" | "signals":
            message = "this question is about a node; answer with proceed, proceed_with, revise, choose or abort"
            return Violation(path="answer", message=message)
        case None:
            message = "no variant is set that this server knows"
            return Violation(path="answer", message=message, reason="UNKNOWN_VARIANT")


def _check_proceed_with(
    question: interrupt_pb2.Interrupt, answer: interrupt_pb2.InterruptAnswer.ProceedWith
) -> Violation | None:
    path = "answer.proceed_with"
    for name, value in sorted(answer.variables.items()):
        violations = check_value(value, f"{path}.variables[{name}]")
        if violations:
            return violations[0]
    if answer.HasField("tool_args"):
        return _check_tool_args(question, answer.tool_args, f"{path}.tool_args")
    if question.answer_schema:
        return _check_schema(question.answer_schema, answer.variables, f"{path}.variables")
    return None


def _check_schema(
    schema: str, variables: Mapping[str, value_pb2.Value], path: str
) -> Violation | None:
    try:
        values: JsonValue = {
            name: to_json(value, name=name) for name, value in sorted(variables.items())
        }
    except ValueNotReadable as error:
        return Violation(path=path, message=f"the answer_schema can't be checked: {error}")
    problem = schemas.check(schema, values)
    if problem is None:
        return None
    return Violation(path=path, message=f"they break the question's answer_schema: {problem}")


def _check_tool_args(question: interrupt_pb2.Interrupt, args: str, path: str) -> Violation | None:
    if not question.HasField("tool"):
        return Violation(
            path=path,
            message="the question is not about a tool call, so there are no arguments to change",
        )
    return tool_approvals.check_tool_args(question.tool, args, path)


# Facts


def apply_interrupt_opened(state: RunState, event: event_pb2.RunEvent) -> None:
    """The question is open."""
    question = event.interrupt_opened.question
    activation = activation_of(state, question)
    suspends = suspending.is_suspension(activation, question)
    state.questions[question.interrupt_id] = Question(interrupt=question, suspends=suspends)
    state.open_questions += 1
    if question.reason.external.token:
        state.external_tokens.add(question.reason.external.token)
    state.interrupt_points.append(question.interrupt_id)
    if question.task_id:
        released = tool_approvals.apply_opened(state, question)
        if released is not None:
            tasks.arm(state, released)
    elif suspends:
        activation.phase = Phase.WAITING
    else:
        activation.phase = Phase.ASKING
        activation.question_id = question.interrupt_id
        # There was one if the call is another than the one that was approved.
        activation.answer = None
    if question.HasField("deadline_time"):
        state.due.arm(
            from_timestamp(question.deadline_time), f"{DUE_PREFIX}{question.interrupt_id}"
        )


def apply_interrupt_answered(state: RunState, event: event_pb2.RunEvent) -> None:
    """The question has its answer; its node can go on."""
    fact = event.interrupt_answered
    question = state.questions[fact.interrupt_id]
    _close(state, question)
    question.answer = fact.answer
    question.answered_by = fact.answered_by
    if question.interrupt.task_id:
        approved = tool_approvals.apply_answered(state, question, fact.answer)
        if approved is not None:
            tasks.arm(state, approved)
        return
    activation = activation_of(state, question.interrupt)
    if fact.answer.HasField("signals"):
        signals.take(state, question)
    if question.suspends:
        suspending.resume(activation, question, fact.answer)
        return
    activation.answer = fact.answer
    activation.phase = Phase.RUNNING


def apply_interrupt_closed(state: RunState, event: event_pb2.RunEvent) -> None:
    """The run went on without an answer."""
    question = state.questions[event.interrupt_closed.interrupt_id]
    _close(state, question)
    question.close_reason = event.interrupt_closed.reason


def _close(state: RunState, question: Question) -> None:
    question.open = False
    question.closed_at = state.updated_at
    state.open_questions -= 1
    state.external_tokens.discard(question.interrupt.reason.external.token)


def current(question: Question) -> interrupt_pb2.Interrupt:
    """Return the question as clients see it now."""
    interrupt = interrupt_pb2.Interrupt()
    interrupt.CopyFrom(question.interrupt)
    if question.open:
        return interrupt
    answered = question.answer is not None
    interrupt.status = (
        interrupt_pb2.INTERRUPT_STATUS_ANSWERED
        if answered
        else interrupt_pb2.INTERRUPT_STATUS_CLOSED
    )
    if question.answer is not None:
        interrupt.answer.CopyFrom(question.answer)
        interrupt.answered_by = question.answered_by
    if question.closed_at is not None:
        interrupt.close_time.CopyFrom(to_timestamp(question.closed_at))
    return interrupt
