"""What spans of attempts say in the words of OpenTelemetry's conventions for generative AI.

Rules: names, ids and numbers only; nothing that was asked or answered. https://opentelemetry.io/docs/specs/semconv/gen-ai/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph.v1 import llm_pb2
from stepgraph_server.telemetry import span_names as names

if TYPE_CHECKING:
    from stepgraph.v1 import event_pb2, task_pb2
    from stepgraph_server.telemetry.spans import Attributes

TOOL_REPORTS_ERROR: Final = "TOOL_REPORTS_ERROR"
"""The `error.type` of an attempt whose tool gave a result that says there is trouble; no failure, so it has no code."""

_FINISH_REASONS: Final = {
    llm_pb2.LLM_STOP_REASON_UNSPECIFIED: "stop",
    llm_pb2.LLM_STOP_REASON_END: "stop",
    llm_pb2.LLM_STOP_REASON_TOOL_CALLS: "tool_call",
    llm_pb2.LLM_STOP_REASON_MAX_TOKENS: "length",
    llm_pb2.LLM_STOP_REASON_REFUSED: "content_filter",
    llm_pb2.LLM_STOP_REASON_OTHER: "other",
}
_NO_RESULT: Final = llm_pb2.Usage()


def describe_work(scheduled: event_pb2.TaskScheduled, run_id: str, attributes: Attributes) -> str:
    """Add what is known before a task is worked on, and return the name of its spans."""
    requirement, call_id = scheduled.requirement, scheduled.call_id
    kind = requirement.WhichOneof("kind")
    match kind:
        case "llm":
            return _operation(
                attributes, "chat", {names.REQUEST_MODEL: requirement.llm.model}, run_id=run_id
            )
        case "tool":
            named = {names.TOOL_NAME: requirement.tool.name, names.TOOL_TYPE: "function"}
            return _operation(attributes, "execute_tool", named, call_id=call_id)
        case "agent":
            named = {names.AGENT_NAME: requirement.agent.kind}
            return _operation(attributes, "invoke_agent", named, run_id=run_id, call_id=call_id)
        case "condition":
            return f"condition {requirement.condition.name}"
        case "step":
            return f"step {requirement.step.program}"
        case "effect":
            return f"effect {requirement.effect.kind}"
        case None:
            # Of a newer schema: it has been, so it is shown, although nobody here knows what it was.
            return "task"


def _operation(
    attributes: Attributes,
    operation: str,
    named: dict[str, str],
    *,
    run_id: str = "",
    call_id: str = "",
) -> str:
    attributes[names.OPERATION] = operation
    attributes[names.PROVIDER] = "stepgraph"
    attributes.update(named)
    if run_id:
        attributes[names.CONVERSATION_ID] = run_id
    if call_id:
        attributes[names.TOOL_CALL_ID] = call_id
    return f"{operation} {next(iter(named.values()))}"


def describe_result(result: task_pb2.TaskResult, attributes: Attributes) -> str:
    """Add what a result says of itself, and return its `error.type`; empty if all is well."""
    match result.WhichOneof("kind"):
        case "llm":
            reply = result.llm
            if reply.model:
                attributes[names.RESPONSE_MODEL] = reply.model
            attributes[names.FINISH_REASONS] = (_FINISH_REASONS.get(reply.stop_reason, "other"),)
        case "tool" if result.tool.is_error:
            return TOOL_REPORTS_ERROR
        case _:
            pass
    return ""


def describe_usage(usage: llm_pb2.Usage, attributes: Attributes) -> None:
    """Add what an attempt cost. What costs nothing says nothing."""
    for name, tokens in (
        (names.INPUT_TOKENS, usage.input_tokens),
        (names.OUTPUT_TOKENS, usage.output_tokens),
        (names.CACHED_INPUT_TOKENS, usage.cached_input_tokens),
        (names.REASONING_TOKENS, usage.reasoning_tokens),
    ):
        if tokens:
            attributes[name] = tokens


def usage_of(result: task_pb2.TaskResult) -> llm_pb2.Usage:
    """Return what a result cost."""
    match result.WhichOneof("kind"):
        case "llm":
            return result.llm.usage
        case "agent":
            return result.agent.usage
        case "graph":
            return result.graph.usage
        case _:
            return _NO_RESULT
