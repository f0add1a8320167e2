"""Parts of the schema in a few words, for people: values, failures, requirements, times.

Rules: pure; one line each, and bounded: a payload is shown, never poured out. Nothing here is for programs to read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from stepgraph.v1.event_pb2 import SkipReason, TaskLossReason
from stepgraph_client.documents import DocumentError, Entries, Items, read_document
from stepgraph_client.scalars import json_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from google.protobuf.timestamp_pb2 import Timestamp

    from stepgraph.v1.conversation_pb2 import ContentBlock, ToolCallBlock
    from stepgraph.v1.executor_service_pb2 import Capability
    from stepgraph.v1.interrupt_pb2 import Interrupt, InterruptAnswer
    from stepgraph.v1.llm_pb2 import LlmResponse, Usage
    from stepgraph.v1.run_pb2 import GraphVersion
    from stepgraph.v1.task_pb2 import Requirement, TaskResult
    from stepgraph.v1.value_pb2 import Value
    from stepgraph_client.documents import Part

#: How much of a payload a line shows.
MAX_SHOWN = 120


def shortened(text: str, limit: int = MAX_SHOWN) -> str:
    """Return a text as one line, cut with a mark where it is too long."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def value_text(value: Value, limit: int = MAX_SHOWN) -> str:
    """Return a value as one line."""
    match value.WhichOneof("kind"):
        case "text":
            return shortened(value.text, limit)
        case "json":
            return shortened(value.json, limit)
        case "blob":
            return f"{value.blob.media_type or 'bytes'}, {size_text(len(value.blob.data))}"
        case "stored":
            what = value.stored.media_type or "a stored value"
            return f"{what}, {size_text(value.stored.size_bytes)}, {value.stored.digest[:19]}…"
        case "secret":
            return f"the secret {value.secret.name}"
        case _:
            return ""


def full_value_text(value: Value) -> str:
    """Return a value as people want to read a result: all of its text, JSON indented."""
    if value.WhichOneof("kind") == "text":
        return value.text
    if value.WhichOneof("kind") == "json":
        try:
            # As a tree of what was written: parsed, a number might come back as another one.
            return _indented(read_document(value.json, is_json=True), "\n")
        except DocumentError:
            return value.json
    return value_text(value)


def _indented(part: Part, newline: str) -> str:
    inner = f"{newline}  "
    match part:
        case Entries(entries=entries) if entries:
            lines = (
                f"{json.dumps(key.text, ensure_ascii=False)}: {_indented(each, inner)}"
                for key, each in entries
            )
            return "{" + inner + f",{inner}".join(lines) + newline + "}"
        case Items(items=items) if items:
            lines = (_indented(each, inner) for each in items)
            return "[" + inner + f",{inner}".join(lines) + newline + "]"
        case _:
            return json_of(part)


def size_text(size_bytes: int) -> str:
    """Return a size: "12 B", "3.4 KiB", "5 MiB"."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    if size_bytes < 1024 * 1024:
        return f"{size_bytes / 1024:.3g} KiB"
    return f"{size_bytes / 1024 / 1024:.3g} MiB"


def requirement_text(requirement: Requirement) -> str:
    """Return what an executor must be able to do: "model claude", "tool search"."""
    match requirement.WhichOneof("kind"):
        case "llm":
            return f"model {requirement.llm.model}"
        case "tool":
            return f"tool {requirement.tool.name}"
        case "agent":
            return f"agent {requirement.agent.kind}"
        case "condition":
            return f"condition {requirement.condition.name}"
        case "step":
            return f"step program {requirement.step.program}"
        case "effect":
            return f"effect {requirement.effect.kind}"
        case _:
            return "something that this version does not know"


def capability_text(capability: Capability) -> str:
    """Return what an executor can do: "models claude, gpt*", "tool search"."""
    match capability.WhichOneof("kind"):
        case "llm":
            return f"models {', '.join(capability.llm.models)}"
        case "tool":
            approval = " (asks first)" if capability.tool.requires_approval else ""
            return f"tool {capability.tool.definition.name}{approval}"
        case "agent":
            return f"agent {capability.agent.kind}"
        case "condition":
            return f"condition {capability.condition.name}"
        case "step":
            return f"step program {capability.step.program}"
        case "effect":
            return f"effect {capability.effect.kind}"
        case _:
            return "something that this version does not know"


def graph_text(graph: GraphVersion) -> str:
    """Return a graph's name and version, or the beginning of its digest."""
    return f"{graph.name}@{graph.version}" if graph.version else (graph.name or graph.digest[:19])


def labels_text(labels: Mapping[str, str]) -> str:
    """Return labels as one text, in order."""
    return ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))


def names_text(names: Iterable[str], limit: int = 8) -> str:
    """Return names as one text; the rest is counted."""
    listed = list(names)
    shown = ", ".join(listed[:limit])
    return f"{shown} and {len(listed) - limit} more" if len(listed) > limit else shown


def result_text(result: TaskResult) -> str:
    """Return what a task gave, as one line."""
    match result.WhichOneof("kind"):
        case "llm":
            return reply_text(result.llm)
        case "tool":
            prefix = "reported an error: " if result.tool.is_error else ""
            output = value_text(result.tool.output) or blocks_text(result.tool.content)
            return prefix + (output or "done")
        case "agent":
            return value_text(result.agent.output) or "done"
        case "condition":
            return "holds" if result.condition.holds else "does not hold"
        case "step":
            wants = result.step.transition.WhichOneof("kind") or "something new"
            return f"wants {wants.removesuffix('_effects')}"
        case "effect":
            return value_text(result.effect.output) or "done"
        case _:
            return "done"


def reply_text(reply: LlmResponse) -> str:
    """Return a model's reply: the calls that it wants, else what it says."""
    blocks = reply.message.content
    calls = [call_text(each.tool_call) for each in blocks if each.WhichOneof("kind") == "tool_call"]
    cost = usage_text(reply.usage)
    said = f"wants {names_text(calls)}" if calls else blocks_text(blocks)
    return f"{said or 'answered'}{f' ({cost})' if cost else ''}"


def call_text(call: ToolCallBlock) -> str:
    """Return a call as `search({"q": "x"})`."""
    return f"{call.name}({shortened(call.args, 60)})"


def blocks_text(blocks: Iterable[ContentBlock]) -> str:
    """Return the texts of content blocks as one line, with calls and their results; other kinds by their name."""
    parts: list[str] = []
    for block in blocks:
        match block.WhichOneof("kind"):
            case "text" if block.text.WhichOneof("body") == "text":
                parts.append(block.text.text)
            case "tool_call":
                parts.append(f"[{call_text(block.tool_call)}]")
            case "tool_result":
                said = blocks_text(block.tool_result.content)
                parts.append(f"error: {said}" if block.tool_result.is_error else said)
            case "thinking" | None:
                continue
            case kind:
                parts.append(f"[{kind}]")
    return shortened(" ".join(parts))


def usage_text(usage: Usage) -> str:
    """Return what a call cost; empty if nothing is known."""
    if not usage.input_tokens and not usage.output_tokens:
        return ""
    return f"{usage.input_tokens:,} + {usage.output_tokens:,} tokens"


def question_text(question: Interrupt) -> str:
    """Return what a question asks."""
    match question.reason.WhichOneof("kind"):
        case "human":
            return question.reason.human.prompt or f"go on with {question.node_id}?"
        case "external":
            return f"waits for another system that holds the token {question.reason.external.token}"
        case "signal":
            return f"waits for the signal {question.reason.signal.name}"
        case _:
            return "waits for something that this version does not know"


def answer_text(answer: InterruptAnswer) -> str:
    """Return an answer as one line."""
    match answer.WhichOneof("kind"):
        case "proceed":
            return "proceed"
        case "proceed_with":
            names = names_text(sorted(answer.proceed_with.variables))
            return f"proceed with {names}" if names else "proceed with changes"
        case "revise":
            return f"revise: {shortened(answer.revise.feedback)}"
        case "choose":
            return f"choose {answer.choose.option_id}"
        case "abort":
            return f"abort: {shortened(answer.abort.reason)}".removesuffix(": ")
        case "reply":
            return f"reply {value_text(answer.reply.value)}"
        case "failed":
            return f"failed: {answer.failed.failure.code}"
        case "signals":
            came = answer.signals.payloads
            return f"signal {', '.join(map(value_text, came))}"
        case _:
            return "something that this version does not know"


def skip_text(reason: SkipReason.ValueType) -> str:
    """Return why a node was skipped."""
    match reason:
        case SkipReason.SKIP_REASON_UNREACHABLE:
            return "the run went another way"
        case SkipReason.SKIP_REASON_TERMINAL_REACHED:
            return "the run is at its end"
        case _:
            return "not needed"


def loss_text(reason: TaskLossReason.ValueType) -> str:
    """Return how an attempt was lost."""
    match reason:
        case TaskLossReason.TASK_LOSS_REASON_DISCONNECTED:
            return "its executor went away"
        case TaskLossReason.TASK_LOSS_REASON_FORGOTTEN:
            return "its executor came back without it"
        case TaskLossReason.TASK_LOSS_REASON_WITHDRAWN:
            return "its executor did not accept it in time"
        case TaskLossReason.TASK_LOSS_REASON_REJECTED:
            return "its executor rejected it"
        case _:
            return "lost"


def seconds_between(start: Timestamp, end: Timestamp) -> float:
    """Return the seconds from one point in time to another; 0 if the second is not later."""
    return max(0.0, end.seconds - start.seconds + (end.nanos - start.nanos) / 1e9)


def time_text(point: Timestamp) -> str:
    """Return a point in time as "2026-01-31 12:00:05Z"; empty for one that is not set."""
    if not point.seconds and not point.nanos:
        return ""
    return point.ToDatetime().strftime("%Y-%m-%d %H:%M:%SZ")


def span_text(seconds: float) -> str:
    """Return a length of time: "0.25 s", "12 s", "3 min 5 s", "2 h 10 min"."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
