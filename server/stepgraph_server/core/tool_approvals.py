"""Approval of single tool calls: whether a call needs one, and the question.

Rules: approval is a stage in the life of a task, before its first attempt; whatever asks for a tool goes through it, and nothing else of the
turn waits. It is bound to the digest of tool and arguments: what was approved is what runs, and other content is another question. A task
that has been tried is not asked about any more. Who needs approval is decided when the task is about to be handed out: the graph's
`approval_filter` says so, or what was recorded when the tool was offered, or an executor that could take the task now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2, interrupt_pb2, task_pb2
from stepgraph_server.core import json_text, schemas
from stepgraph_server.core.actions.calls import call_question
from stepgraph_server.core.decisions import filter_passes
from stepgraph_server.core.errors import Violation
from stepgraph_server.core.instants import after, from_duration, to_timestamp
from stepgraph_server.core.interrupt_ids import interrupt_id
from stepgraph_server.core.preparing import prepare
from stepgraph_server.core.state import TaskStatus

if TYPE_CHECKING:
    from stepgraph_server.core.decisions import OfferedTool
    from stepgraph_server.core.state import Question, RunState, Task
    from stepgraph_server.core.turn import Turn


def is_needed(turn: Turn, task: Task) -> bool:
    """Whether a person has to approve a task before it is handed out."""
    if task.key[0] != "tool" or task.attempt:
        return False
    if task.approved:
        return task.approved != _question(turn.state, task).digest
    return _is_sensitive(turn, task)


def _is_sensitive(turn: Turn, task: Task) -> bool:
    state = turn.state
    if filter_passes(state.graph.approval_filter, task.key[1]):
        return True
    offered = _offered(state, task)
    if offered is not None and offered.requires_approval:
        return True
    return turn.world.requires_approval(task)


def _offered(state: RunState, task: Task) -> OfferedTool | None:
    """Return the tool as its model was offered it; None if the task performs no call of a model."""
    tools = state.tool_sets.get(task.activation.carried.tools_digest) if task.key[2] else None
    return tools.offered.get(task.key[1]) if tools is not None else None


def ask(turn: Turn, task: Task) -> None:
    """Open the question about a task. Its node's deadline and default answer hold, unless the node has a question of its own."""
    state, node = turn.state, task.activation.node
    sequence = state.sequence + 1
    tool = _question(state, task)
    tool.input_schema = _input_schema(turn, task)
    interrupt = interrupt_pb2.Interrupt(
        interrupt_id=interrupt_id(state.run_id, sequence),
        run_id=state.run_id,
        root_run_id=state.root_run_id,
        activation_id=task.activation.id,
        node_id=node.id,
        task_id=task.id,
        reason=interrupt_pb2.SuspendReason(
            human=interrupt_pb2.SuspendReason.Human(prompt=f"Call {tool.tool_name}?")
        ),
        opened_sequence=sequence,
        open_time=to_timestamp(turn.now),
        status=interrupt_pb2.INTERRUPT_STATUS_OPEN,
        tool=tool,
    )
    settings = node.definition.interrupt_options
    if settings.HasField("deadline") and not node.asks:
        deadline = after(turn.now, from_duration(settings.deadline))
        interrupt.deadline_time.CopyFrom(to_timestamp(deadline))
        if settings.HasField("default_answer"):
            interrupt.default_answer.CopyFrom(settings.default_answer)
    turn.emit("interrupt_opened", event_pb2.InterruptOpened(question=interrupt))


def _question(state: RunState, task: Task) -> interrupt_pb2.ToolQuestion:
    """Return what would be called, as an executor would get it."""
    tool = task_pb2.TaskInput.FromString(prepare(state, task).build(state)).tool
    return call_question(tool.name, tool.args, call_id=tool.call_id)


def _input_schema(turn: Turn, task: Task) -> str:
    """Return what other arguments must satisfy: what the model was told, else what is on offer now."""
    offered = _offered(turn.state, task)
    if offered is not None:
        return offered.input_schema
    offers = turn.world.tools(task.selector)
    return next(
        (each.definition.input_schema for each in offers if each.definition.name == task.key[1]), ""
    )


def approved_digest(
    question: interrupt_pb2.Interrupt, answer: interrupt_pb2.InterruptAnswer
) -> str:
    """Return the digest of what may run after an answer that is a yes."""
    tool = question.tool
    if not answer.proceed_with.HasField("tool_args"):
        return tool.digest
    return call_question(tool.tool_name, answer.proceed_with.tool_args).digest


def close_question(turn: Turn, task: Task, reason: str) -> None:
    """Close the question about a task that ends without an answer."""
    question = turn.state.questions.get(task.question_id)
    if question is not None and question.open:
        fact = event_pb2.InterruptClosed(interrupt_id=task.question_id, reason=reason)
        turn.emit("interrupt_closed", fact)


# Answers


def check_answer(
    question: interrupt_pb2.Interrupt, answer: interrupt_pb2.InterruptAnswer
) -> Violation | None:
    """Return why an answer does not fit the approval of a tool, or None."""
    kind = answer.WhichOneof("kind")
    match kind:
        case "proceed" | "revise" | "abort":
            return None
        case "proceed_with":
            return _check_proceed_with(question, answer.proceed_with)
        case None:
            message = "no variant is set that this server knows"
            return Violation(path="answer", message=message, reason="UNKNOWN_VARIANT")
        case _:
            message = (
                f"{question.tool.tool_name} waits for approval; answer with proceed, proceed_with (and its tool_args), "
                f"revise or abort, not with {kind}"
            )
            return Violation(path=f"answer.{kind}", message=message)


def _check_proceed_with(
    question: interrupt_pb2.Interrupt, answer: interrupt_pb2.InterruptAnswer.ProceedWith
) -> Violation | None:
    path = "answer.proceed_with"
    for field in ("variables", "message"):
        if getattr(answer, field):
            message = (
                f"the question is about one call of {question.tool.tool_name}, so nothing but its "
                "tool_args can be given"
            )
            return Violation(path=f"{path}.{field}", message=message)
    if not answer.HasField("tool_args"):
        return None
    return check_tool_args(question.tool, answer.tool_args, f"{path}.tool_args")


def check_tool_args(tool: interrupt_pb2.ToolQuestion, args: str, path: str) -> Violation | None:
    """Return why these can't be the arguments of a call, or None."""
    try:
        value = json_text.parse(args)
    except json_text.JsonTextError as error:
        return Violation(path=path, message=str(error), reason="JSON_INVALID")
    if not isinstance(value, dict):
        return Violation(path=path, message="the arguments must be one JSON object")
    if not tool.input_schema:
        return None
    try:
        problem = schemas.check(tool.input_schema, value)
    except schemas.SchemaError:
        # It was checked when the tool was declared. What a later version can't read, the executor judges.
        return None
    if problem is None:
        return None
    return Violation(path=path, message=f"they break the schema of {tool.tool_name}: {problem}")


# Facts


def apply_opened(state: RunState, question: interrupt_pb2.Interrupt) -> Task | None:
    """The task waits for a person, and takes no place among those that run at once. Returns the one that has its place now."""
    task = state.tasks[question.task_id]
    activation = task.activation
    task.question_id = question.interrupt_id
    if task.status is TaskStatus.ASKING:
        # A fork asks again what was being asked.
        return None
    following: Task | None = None
    if task.held:
        task.held = False
        activation.held.remove(task)
    elif activation.held:
        following = activation.held.popleft()
        release(state, following)
    task.status = TaskStatus.ASKING
    task.approved, task.args, task.prepared, task.waits = "", None, None, False
    state.asking += 1
    activation.placeless += 1
    return following


def release(state: RunState, task: Task) -> None:
    """A concurrency cap does not hold the task back any more. It is ready now, so its queue limit counts from now."""
    task.held = False
    task.queued_at = state.updated_at


def apply_answered(
    state: RunState, question: Question, answer: interrupt_pb2.InterruptAnswer
) -> Task | None:
    """Return the task that may run now; None if the answer is a no, which its end follows at once."""
    task = state.tasks[question.interrupt.task_id]
    if answer.WhichOneof("kind") in ("revise", "abort"):
        return None
    activation = task.activation
    if activation.is_full:
        task.held = True
        activation.held.append(task)
    leave(state, task)
    task.status = TaskStatus.QUEUED
    # A limit does not count the time that people take.
    task.scheduled_at = task.queued_at = state.updated_at
    task.approved = approved_digest(question.interrupt, answer)
    if answer.proceed_with.HasField("tool_args"):
        task.args = answer.proceed_with.tool_args
        task.prepared = None
    return task


def leave(state: RunState, task: Task) -> None:
    """The task does not wait for a person any more."""
    if task.status is TaskStatus.ASKING:
        state.asking -= 1
        task.activation.placeless -= 1


__all__ = [
    "apply_answered",
    "apply_opened",
    "approved_digest",
    "ask",
    "check_answer",
    "check_tool_args",
    "close_question",
    "is_needed",
    "leave",
    "release",
]
