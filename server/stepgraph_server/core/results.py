"""Whether what an executor reports can be recorded as the result of its task.

Rules: a result that can't be taken becomes a failure of the attempt, with the reason; it never fails the session, nor is
part of it recorded. Model replies get the server's call ids here, before they are recorded, so that nothing later depends
on what a provider calls its calls.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import conversation_pb2, failure_pb2, graph_pb2, llm_pb2, task_pb2, value_pb2
from stepgraph_server.core import canonical, json_text, schemas
from stepgraph_server.core.call_ids import assign_call_ids, name_calls
from stepgraph_server.core.decisions import reply_text
from stepgraph_server.core.failures import failure
from stepgraph_server.core.step_replies import stored_in_reply
from stepgraph_server.core.values import check_message, check_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from google.protobuf.message import Message

    from stepgraph_server.core.errors import Violation
    from stepgraph_server.core.inputs import RunLimits
    from stepgraph_server.core.state import Task

#: A result below this size can't break a size limit, so its parts need not be measured.
_SMALL_BYTES: Final = 64 * 1024


def accept_result(
    task: Task, result: task_pb2.TaskResult, limits: RunLimits
) -> failure_pb2.Failure | None:
    """Make a result what it is to be recorded as, in place, and return None; or return why it can't be recorded."""
    kind = result.WhichOneof("kind")
    if kind != task.key[0]:
        return failure(
            "RESULT_INVALID",
            f"the result is of kind {kind or 'none that is known'}, but the task is of kind {task.key[0]}",
            source=task.executor_id,
        )
    violations = _check(result)
    if violations:
        first = violations[0]
        code = first.reason if first.reason == "PAYLOAD_TOO_LARGE" else "RESULT_INVALID"
        return failure(
            code,
            f"{first.path}: {first.message}",
            source=task.executor_id,
            details={"field": first.path, "limit_bytes": str(limits.max_inline_value_bytes)},
        )
    return _accept_reply(task, result.llm) if kind == "llm" else None


def _check(result: task_pb2.TaskResult) -> list[Violation]:
    match result.WhichOneof("kind"):
        case "llm":
            return (
                check_message(result.llm.message, "llm.message")
                if result.ByteSize() > _SMALL_BYTES
                else []
            )
        case "tool":
            return _check_tool(result)
        case "agent":
            return _check_output(result.agent.output, "agent.output")
        case "effect":
            return _check_output(result.effect.output, "effect.output")
        case "graph":
            found = _check_output(result.graph.output, "graph.output")
            for name in sorted(result.graph.variables):
                found += check_value(result.graph.variables[name], f"graph.variables.{name}")
            return found
        case _:
            return []


def _check_tool(result: task_pb2.TaskResult) -> list[Violation]:
    tool = result.tool
    violations = _check_output(tool.output, "tool.output")
    if tool.content and result.ByteSize() > _SMALL_BYTES:
        message = conversation_pb2.Message(role=conversation_pb2.ROLE_TOOL, content=tool.content)
        violations += check_message(message, "tool")
    return violations


def _check_output(value: value_pb2.Value, path: str) -> list[Violation]:
    # Absent is fine, and short text is the common case: nothing about it can be wrong.
    kind = value.WhichOneof("kind")
    if kind is None or (kind == "text" and len(value.text) < _SMALL_BYTES):
        return []
    return check_value(value, path)


def _accept_reply(task: Task, reply: llm_pb2.LlmResponse) -> failure_pb2.Failure | None:
    if reply.stop_reason == llm_pb2.LLM_STOP_REASON_MAX_TOKENS:
        why = "the reply was cut off by its token limit; allow more tokens, or ask for less"
        return failure("REPLY_CUT_OFF", why, source=task.executor_id)
    if reply.stop_reason == llm_pb2.LLM_STOP_REASON_REFUSED:
        return failure(
            "REPLY_REFUSED",
            f"the model refused: {reply_text(reply.message)}",
            source=task.executor_id,
        )
    message = reply.message
    message.role = conversation_pb2.ROLE_ASSISTANT
    return None if name_calls(message, _call_prefix(task)) else _schema_problem(task, message)


def _call_prefix(task: Task) -> str:
    """Return what the ids of a reply's calls begin with: unique in the run, and the same whoever ended first."""
    activation = task.activation
    # Any provider takes these characters; a node's id could have a dot.
    if activation.program is None and activation.parent is None:
        return f"call_{activation.superstep}_{activation.node.index}_"
    # Its node may ask models many times over, in one turn and in many.
    return f"call_{hashlib.sha256(task.id.encode()).hexdigest()[:12]}_"


def _schema_problem(task: Task, message: conversation_pb2.Message) -> failure_pb2.Failure | None:
    schema = _schema_of(task)
    if not schema:
        return None
    try:
        problem = schemas.check(schema, json_text.parse(reply_text(message)))
    except json_text.JsonTextError as error:
        problem = f"the reply is not JSON: {error}"
    if problem is None:
        return None
    return failure(
        "OUTPUT_SCHEMA", f"the reply breaks output_schema: {problem}", source=task.executor_id
    )


def _schema_of(task: Task) -> str:
    program = task.activation.program
    if program is not None:
        return program.open[task.turn, task.index].effect.llm.request.output_schema
    action = task.activation.node.action
    return action.output_schema if isinstance(action, graph_pb2.NodeAction.LlmInfer) else ""


def stored_digests(result: task_pb2.TaskResult) -> list[str]:
    """Return the digests of all stored values that a result refers to; whoever delivers it looks whether they exist.

    Nearly every result has none, and most of them can be told by a few looks: they are not walked.
    """
    match result.WhichOneof("kind"):
        case "llm":
            may_refer = not _is_plain(result.llm.message.content)
        case "tool":
            tool = result.tool
            may_refer = tool.output.HasField("stored") or not _is_plain(tool.content)
        case "agent":
            may_refer = result.agent.output.HasField("stored")
        case "effect":
            may_refer = result.effect.output.HasField("stored")
        case "step":
            return stored_in_reply(result.step, _digests)
        case _:
            may_refer = False
    return list(dict.fromkeys(_digests(result))) if may_refer else []


def _is_plain(blocks: Iterable[conversation_pb2.ContentBlock]) -> bool:
    for block in blocks:
        kind = block.WhichOneof("kind")
        if kind == "text":
            if block.text.HasField("stored"):
                return False
        elif kind not in ("tool_call", "thinking"):
            return False
    return True


def _digests(message: Message) -> Iterator[str]:
    # The depth of what was parsed is bounded, so recursion is safe.
    if isinstance(message, value_pb2.StoredValue):
        yield message.digest
        return
    for field, content in message.ListFields():
        inner = field.message_type
        if inner is None:
            continue
        if inner.GetOptions().map_entry:
            items = content.values() if inner.fields_by_name["value"].message_type else ()
        else:
            items = content if field.is_repeated else (content,)
        for item in items:
            yield from _digests(item)


def value_missing(task: Task, digest: str) -> failure_pb2.Failure:
    """Return the failure of a result that refers to a stored value that does not exist."""
    return failure(
        "RESULT_INVALID",
        f"the result refers to the stored value {digest}, which was not found; store it first, then return the reference",
        source=task.executor_id,
        details={"digest": digest},
    )


def same_result(one: task_pb2.TaskResult, recorded: task_pb2.TaskResult) -> bool:
    """Whether a reported result is the one that was recorded, by canonical digest; call ids aside, which the server made."""
    return canonical.digest(_without_call_ids(one)) == canonical.digest(_without_call_ids(recorded))


def _without_call_ids(result: task_pb2.TaskResult) -> task_pb2.TaskResult:
    if not result.HasField("llm"):
        return result
    bare = task_pb2.TaskResult()
    bare.CopyFrom(result)
    bare.llm.message.CopyFrom(assign_call_ids(result.llm.message, ""))
    bare.llm.message.role = conversation_pb2.ROLE_ASSISTANT
    for block in bare.llm.message.content:
        if block.HasField("tool_call"):
            block.tool_call.ClearField("provider_id")
    return bare
