"""Decisions as lines of text, short enough to be read, without payloads that say nothing.

Edges of a node: `+` followed, `-` did not hold, `~` spent, `.` not considered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import (
    event_pb2,
    executor_service_pb2,
    policy_pb2,
    run_pb2,
    state_pb2,
    transition_pb2,
)
from stepgraph_server.core.inputs import (
    AttemptOver,
    Cancel,
    ChildEnd,
    Enqueue,
    Pause,
    Send,
    StartChild,
    StopAttempt,
    TellChild,
    TellParent,
    Unpause,
    Yield,
)
from stepgraph_server.core.instants import Span, from_timestamp, seconds_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepgraph.v1 import failure_pb2, interrupt_pb2, task_pb2, value_pb2
    from stepgraph_server.core.inputs import Command

_VERDICTS = {1: "+", 2: "-", 3: "~", 4: "."}


def name_of(kind: str) -> str:
    """Return the name of an event's kind as the schema has it."""
    return "".join(part.capitalize() for part in kind.split("_"))


def event_line(event: event_pb2.RunEvent) -> str:
    """Return an event as one line."""
    kind = event.WhichOneof("kind") or "unset"
    describe = globals().get(f"_{kind}")
    text = describe(event, getattr(event, kind)) if describe is not None else ""
    return f"{event.sequence} {name_of(kind)} {text}".rstrip()


def command_lines(commands: Iterable[Command]) -> list[str]:
    """Return commands as lines; that an attempt is over goes without saying."""
    lines = []
    for command in commands:
        match command:
            case Send():
                lines.append(f"> send {command.task.id}#{command.attempt} to {command.executor_id}")
            case Enqueue():
                lines.append(f"> queue {command.task.id}")
            case StopAttempt():
                lines.append(
                    f"> stop {command.task_id}#{command.attempt} at {command.executor_id}: "
                    f"{command.reason}"
                )
            case StartChild():
                lines.append(f"> start the child of {command.task.id}")
            case TellChild():
                lines.append(f"> tell the child of {command.task_id} {_wish(command.happened)}")
            case TellParent():
                end = command.seen.end
                done = f", {_end(end)}" if end is not None else ""
                lines.append(
                    f"> tell parent {command.parent_run_id}/{command.seen.task_id} "
                    f"{status_name(command.seen.status)}{done}"
                )
            case Yield():
                lines.append("> yield")
            case AttemptOver():
                pass
    return lines


def _wish(happened: Cancel | Pause | Unpause) -> str:
    match happened:
        case Cancel():
            return f"to stop: {happened.reason}"
        case Pause():
            return f"to pause: {happened.reason}"
        case Unpause():
            return "to go on"


def _end(end: ChildEnd) -> str:
    said = value_text(end.output) if end.failure is None else failure_text(end.failure)
    names = f" with {' '.join(sorted(end.variables))}" if end.variables else ""
    return f"{said}{names}"


def ack_line(ack: tuple[str, int, int]) -> str:
    """Return a verdict as a line."""
    task_id, attempt, verdict = ack
    name = executor_service_pb2.AckVerdict.Name(executor_service_pb2.AckVerdict.ValueType(verdict))
    return f"ack {task_id.split('/', 1)[1]}#{attempt} {name.removeprefix('ACK_VERDICT_')}"


def status_name(status: int) -> str:
    """Return a status without its prefix."""
    return run_pb2.RunStatus.Name(run_pb2.RunStatus.ValueType(status)).removeprefix("RUN_STATUS_")


def value_text(value: value_pb2.Value | None) -> str:
    """Return a value: text in quotes, JSON as it is."""
    if value is None:
        return "(none)"
    match value.WhichOneof("kind"):
        case "text":
            text = value.text
            return f'"{text}"' if len(text) < 200 else f'"{text[:20]}…" ({len(text)} characters)'
        case "json":
            return (
                value.json if len(value.json) < 200 else f"{value.json[:20]}… ({len(value.json)})"
            )
        case None:
            return "(empty)"
        case kind:
            return f"({kind})"


def failure_text(failure: failure_pb2.Failure) -> str:
    """Return a failure: code, message, and the codes of what led to it."""
    causes = f" <- {', '.join(cause.code for cause in failure.causes)}" if failure.causes else ""
    return f"{failure.code}: {failure.message}{causes}"


def _requirement(requirement: task_pb2.Requirement) -> str:
    kind = requirement.WhichOneof("kind") or "unset"
    variant = getattr(requirement, kind)
    first = variant.DESCRIPTOR.fields[0].name
    return f"{kind} {getattr(variant, first)}"


def _edges(edges: Iterable[event_pb2.EdgeOutcome]) -> str:
    return " ".join(f"{_VERDICTS[edge.verdict]}{edge.edge_id}" for edge in edges)


def _assignment(assignment: task_pb2.TaskAssignment) -> str:
    return f"#{assignment.attempt} to {assignment.executor_id}"


def _answer(answer: interrupt_pb2.InterruptAnswer) -> str:
    kind = answer.WhichOneof("kind") or "unset"
    text = {
        "revise": answer.revise.feedback,
        "abort": answer.abort.reason,
        "choose": answer.choose.option_id,
        "reply": value_text(answer.reply.value),
        "failed": answer.failed.failure.code,
    }.get(kind, "")
    return f"{kind} {text}".rstrip()


def _result(result: task_pb2.TaskResult) -> str:
    match result.WhichOneof("kind"):
        case "tool":
            return ("error " if result.tool.is_error else "") + value_text(result.tool.output)
        case "condition":
            return "holds" if result.condition.holds else "does not hold"
        case "llm":
            names = [
                f"call {block.tool_call.name} {block.tool_call.id}"
                for block in result.llm.message.content
                if block.HasField("tool_call")
            ]
            return ", ".join(["llm", *names])
        case "step":
            return transition_text(result.step.transition)
        case "graph":
            given = sorted(result.graph.variables.items())
            parts = [f"{name}={value_text(value)}" for name, value in given]
            output = result.graph.output if result.graph.HasField("output") else None
            return " ".join(["child", value_text(output), *parts])
        case None:
            return "slept"
        case kind:
            return str(kind)


def transition_text(transition: transition_pb2.Transition) -> str:
    """Return what a program wants next, in a few words."""
    match transition.WhichOneof("kind"):
        case "await_effects":
            awaited = transition.await_effects
            kinds = [each.WhichOneof("kind") or "unset" for each in awaited.effects]
            each = " each" if awaited.wake == transition_pb2.WAKE_POLICY_EACH else ""
            return " ".join(
                ["await" + each, *(kinds if len(kinds) < 9 else [f"{len(kinds)} effects"])]
            )
        case "goto":
            goto = transition.goto
            return f"goto {goto.target} {value_text(goto.carry)}"
        case "done":
            return f"done {value_text(transition.done.value)}"
        case "spawn":
            name = policy_pb2.JoinPolicy.Name(transition.spawn.join).removeprefix("JOIN_POLICY_")
            return f"spawn {len(transition.spawn.specs)} {name}"
        case "suspend":
            return f"suspend {transition.suspend.reason.WhichOneof('kind')}"
        case kind:
            return str(kind)


def _result_end(result: state_pb2.GraphExecutionResult) -> str:
    parts = [f"iterations={result.iterations}"]
    if result.stop_reason:
        reason = state_pb2.StopReason.Name(result.stop_reason).removeprefix("STOP_REASON_")
        parts.insert(0, reason)
    if result.terminal_node:
        parts.append(f"terminal={result.terminal_node}")
    if result.HasField("output"):
        parts.append(f"output={value_text(result.output)}")
    return " ".join(parts)


# One function for each kind of event whose content is shown.


def _superstep_started(_: event_pb2.RunEvent, fact: event_pb2.SuperstepStarted) -> str:
    return f"{fact.superstep}: {' '.join(fact.nodes)}"


def _node_skipped(_: event_pb2.RunEvent, fact: event_pb2.NodeSkipped) -> str:
    reason = event_pb2.SkipReason.Name(fact.reason).removeprefix("SKIP_REASON_")
    return f"{fact.node_id} {reason}"


def _tools_offered(_: event_pb2.RunEvent, fact: event_pb2.ToolsOffered) -> str:
    return " ".join(tool.name for tool in fact.tools)


def _task_scheduled(_: event_pb2.RunEvent, fact: event_pb2.TaskScheduled) -> str:
    if fact.HasField("due_time") or fact.child_run_id:
        return f"{fact.task_id} ({fact.label})"
    given = _assignment(fact.assignment) if fact.HasField("assignment") else " waits"
    return f"{fact.task_id}{given} ({_requirement(fact.requirement)})"


def _task_assigned(_: event_pb2.RunEvent, fact: event_pb2.TaskAssigned) -> str:
    return f"{fact.task_id}{_assignment(fact.assignment)}"


def _task_completed(_: event_pb2.RunEvent, fact: event_pb2.TaskCompleted) -> str:
    attempt = f"#{fact.attempt}" if fact.attempt else " by the server"
    return f"{fact.task_id}{attempt} {_result(fact.result)}"


def _task_failed(event: event_pb2.RunEvent, fact: event_pb2.TaskFailed) -> str:
    attempt = f"#{fact.attempt}" if fact.attempt else ""
    again = "for good"
    if fact.HasField("retry_time"):
        wait = from_timestamp(fact.retry_time) - from_timestamp(event.time)
        again = f"again in {seconds_text(Span(wait))}"
    return f"{fact.task_id}{attempt} {fact.failure.code}, {again}, tries={fact.tries}"


def _task_lost(_: event_pb2.RunEvent, fact: event_pb2.TaskLost) -> str:
    reason = event_pb2.TaskLossReason.Name(fact.reason).removeprefix("TASK_LOSS_REASON_")
    return f"{fact.task_id}#{fact.attempt} {reason}"


def _task_cancelled(_: event_pb2.RunEvent, fact: event_pb2.TaskCancelled) -> str:
    attempt = f"#{fact.attempt}" if fact.attempt else ""
    said = " acknowledged" if fact.acknowledged else ""
    return f"{fact.task_id}{attempt}{said} ({fact.reason})"


def _task_unclaimed(event: event_pb2.RunEvent, fact: event_pb2.TaskUnclaimed) -> str:
    limit = ""
    if fact.HasField("queue_limit_time"):
        wait = from_timestamp(fact.queue_limit_time) - from_timestamp(event.time)
        limit = f", fails in {seconds_text(Span(wait))}"
    return f"{fact.task_id} ({_requirement(fact.requirement)}){limit}"


def _node_completed(_: event_pb2.RunEvent, fact: event_pb2.NodeCompleted) -> str:
    update = fact.update
    parts = [
        *(f"{name}={value_text(value)}" for name, value in sorted(update.variables.items())),
        *(f"unset {name}" for name in update.delete_variables),
    ]
    edges = "edges pending" if fact.edges_pending else _edges(fact.edges)
    return " ".join([fact.activation_id, *parts, edges]).rstrip()


def _node_failed(_: event_pb2.RunEvent, fact: event_pb2.NodeFailed) -> str:
    return f"{fact.activation_id} {_edges(fact.edges)} {failure_text(fact.failure)}".replace(
        "  ", " "
    )


def _node_cancelled(_: event_pb2.RunEvent, fact: event_pb2.NodeCancelled) -> str:
    return f"{fact.activation_id} ({fact.reason})"


def _edges_evaluated(_: event_pb2.RunEvent, fact: event_pb2.EdgesEvaluated) -> str:
    return f"{fact.activation_id} {_edges(fact.edges)}"


def _interrupt_opened(_: event_pb2.RunEvent, fact: event_pb2.InterruptOpened) -> str:
    question = fact.question
    options = f" options {' '.join(each.id for each in question.options)}" * bool(question.options)
    tool = f" tool {question.tool.tool_name} {question.tool.args}" * question.HasField("tool")
    reason = question.reason
    what = {
        "human": f'"{reason.human.prompt}"',
        "external": "a token",
        "signal": f"signal {reason.signal.name}",
    }.get(reason.WhichOneof("kind") or "", "unset")
    until = ""
    if question.HasField("deadline_time"):
        span = from_timestamp(question.deadline_time) - from_timestamp(question.open_time)
        until = f" within {seconds_text(Span(span))}"
        if question.HasField("default_answer"):
            until += f", else {_answer(question.default_answer)}"
    asker = question.task_id or question.activation_id
    return f"{asker} {what}{options}{tool}{until}"


def _interrupt_answered(_: event_pb2.RunEvent, fact: event_pb2.InterruptAnswered) -> str:
    if fact.answer.HasField("signals"):
        return f"signals {' '.join(map(value_text, fact.answer.signals.payloads))}"
    by = "the deadline" if fact.by_deadline else fact.answered_by
    return f"{_answer(fact.answer)} by {by}"


def _interrupt_closed(_: event_pb2.RunEvent, fact: event_pb2.InterruptClosed) -> str:
    return f"({fact.reason})"


def _variable_overwritten(_: event_pb2.RunEvent, fact: event_pb2.VariableOverwritten) -> str:
    return f"{fact.variable} by {' '.join(fact.node_ids)}"


def _limit_neared(_: event_pb2.RunEvent, fact: event_pb2.LimitNeared) -> str:
    return f"{fact.limit_name} {fact.used} of {fact.maximum}"


def _run_stopping(event: event_pb2.RunEvent, fact: event_pb2.RunStopping) -> str:
    grace = from_timestamp(fact.grace_time) - from_timestamp(event.time)
    outcome = status_name(fact.outcome)
    return f"{outcome} within {seconds_text(Span(grace))}, {failure_text(fact.failure)}"


def _child_started(_: event_pb2.RunEvent, fact: event_pb2.ChildStarted) -> str:
    return fact.task_id


def _child_status_changed(_: event_pb2.RunEvent, fact: event_pb2.ChildStatusChanged) -> str:
    return f"{fact.task_id} {status_name(fact.status)}"


def _graphs_resolved(_: event_pb2.RunEvent, fact: event_pb2.GraphsResolved) -> str:
    return " ".join(f"{each.reference}={each.graph.digest}" for each in fact.graphs)


def _signal_received(_: event_pb2.RunEvent, fact: event_pb2.SignalReceived) -> str:
    payload = f" {value_text(fact.payload)}" if fact.HasField("payload") else ""
    return f"{fact.name}{f' for {fact.correlation}' if fact.correlation else ''}{payload}"


def _run_paused(_: event_pb2.RunEvent, fact: event_pb2.RunPaused) -> str:
    return fact.reason


def _run_forked(_: event_pb2.RunEvent, fact: event_pb2.RunForked) -> str:
    changes = " by another graph" if fact.HasField("graph") else ""
    patched = [*sorted(fact.patch.variables), *(f"-{name}" for name in fact.patch.delete_variables)]
    if fact.patch.HasField("paradigm"):
        patched.append(f"paradigm {fact.patch.paradigm}")
    changes += f" with {' '.join(patched)}" if patched else ""
    return f"of {fact.origin.run_id} at {fact.origin.sequence}{changes}"


def _run_completed(_: event_pb2.RunEvent, fact: event_pb2.RunCompleted) -> str:
    return _result_end(fact.result)


def _run_failed(_: event_pb2.RunEvent, fact: event_pb2.RunFailed) -> str:
    return f"{failure_text(fact.failure)} {_result_end(fact.result)}"


def _run_cancelled(_: event_pb2.RunEvent, fact: event_pb2.RunCancelled) -> str:
    return f"{failure_text(fact.failure)} {_result_end(fact.result)}"


__all__ = [
    "ack_line",
    "command_lines",
    "event_line",
    "failure_text",
    "name_of",
    "status_name",
    "transition_text",
    "value_text",
]
