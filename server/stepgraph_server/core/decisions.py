"""What a model's reply decides, and whether a call that it asks for may run.

Rules: a decision is read from the blocks of the reply and from nothing else. A call is judged against the tools as they
were recorded when they were offered, never against those that are there now. What a model gets wrong is told to the
model, as the result of its call; it never fails a run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import llm_pb2
from stepgraph.v1 import state_pb2 as pb
from stepgraph_server.core import json_text, schemas
from stepgraph_server.core.conversation import message_text
from stepgraph_server.core.names import RESERVED_TOOLS, is_id

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from stepgraph.v1 import conversation_pb2
    from stepgraph_server.core.json_text import JsonValue

DELEGATE: Final = "delegate"
SWITCH_PARADIGM: Final = "switch_paradigm"

MAX_LISTED_TOOLS: Final = 20
"""How many known names a model is told when it asks for a tool that there is not."""

MAX_ARGS_BYTES: Final = 256 * 1024

_ARGS_LIMITS: Final = json_text.JsonLimits(max_bytes=MAX_ARGS_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """A tool as it was offered to a model.

    Attributes:
        name: Its name.
        digest: The digest of its definition; empty for one that the server or the graph answers.
        input_schema: JSON Schema of the arguments, as JSON text; empty means any object.
        requires_approval: An executor said that a person must approve each call.
    """

    name: str
    digest: str = ""
    input_schema: str = ""
    requires_approval: bool = False


def parse_decision(
    message: conversation_pb2.Message, *, paradigms: Collection[str] | None = None
) -> pb.GraphDecision:
    """Return what a reply decides, whose calls have the server's ids. `paradigms` are the graph's; None takes any.

    The first of these that there is: a call of `delegate`, a call of `switch_paradigm`, any calls, an answer. Calls that
    lose get no result from anybody, so the model reads that they were not run. A call of a reserved tool whose
    arguments make no sense is like any other call: `judge_call` then says to the model what is wrong with it, and an
    agent that was meant to be asked is not asked for nothing.
    """
    delegate: pb.GraphDecision | None = None
    switch: pb.GraphDecision | None = None
    calls: list[conversation_pb2.ToolCallBlock] = []
    for block in message.content:
        if not block.HasField("tool_call"):
            continue
        call = block.tool_call
        match call.name:
            case "delegate" if delegate is None:
                delegate = _delegate(call)
            case "switch_paradigm" if switch is None:
                switch = _switch(call, paradigms)
        calls.append(call)
    if delegate is not None:
        return delegate
    if switch is not None:
        return switch
    if calls:
        # Built in place: as arguments of a constructor the calls would be copied twice.
        decision = pb.GraphDecision()
        asked = decision.tool_calls
        asked.count = len(calls)
        asked.calls.extend(calls)
        return decision
    return pb.GraphDecision(direct_answer=pb.GraphDecision.DirectAnswer(text=reply_text(message)))


def reply_text(message: conversation_pb2.Message) -> str:
    """Return the text of a reply: all its text blocks, one directly after the other."""
    return message_text(message)


def judge_call(
    call: conversation_pb2.ToolCallBlock, offered: Mapping[str, OfferedTool]
) -> str | None:
    """Return None if a requested call may run, else what the model is told as its `is_error` result."""
    name = call.name
    tool = offered.get(name)
    if tool is None and name not in RESERVED_TOOLS:
        return _unknown_tool(name, offered)
    args = _parse_args(call.args)
    if isinstance(args, str):
        return f"The arguments of {name} can't be used: {args}."
    problem = _schema_problem(tool, args)
    if problem is not None:
        return f"The arguments of {name} break its schema: {problem}."
    return _judge_reserved(call) if name in RESERVED_TOOLS else None


def filter_passes(tool_filter: llm_pb2.ToolFilter | None, name: str) -> bool:
    """Whether a tool passes a filter. An absent filter lets everything pass, an empty one nothing."""
    if tool_filter is None:
        return True
    return _matches(tool_filter.allow, name) and not _matches(tool_filter.deny, name)


def delegate_definition() -> llm_pb2.ToolDefinition:
    """Return the definition of `delegate` as models see it."""
    return llm_pb2.ToolDefinition(
        name=DELEGATE,
        description="Hand a task to another agent. Its answer comes back as the result of this call.",
        input_schema=_DELEGATE_SCHEMA,
    )


def switch_paradigm_definition(paradigms: Sequence[str]) -> llm_pb2.ToolDefinition:
    """Return the definition of `switch_paradigm` as models see it. `paradigms` are the graph's."""
    return llm_pb2.ToolDefinition(
        name=SWITCH_PARADIGM,
        description="Go on in another way of working.",
        input_schema=_object_schema({"paradigm": {"type": "string", "enum": [*paradigms]}}),
    )


def _object_schema(properties: dict[str, JsonValue]) -> str:
    return json_text.dump(
        {
            "type": "object",
            "properties": properties,
            "required": [*properties],
            "additionalProperties": False,
        }
    )


_DELEGATE_SCHEMA: Final = _object_schema(
    {
        "agent_kind": {"type": "string", "description": "The kind of agent."},
        "task": {"type": "string", "description": "What it should do, with all that it must know."},
    }
)


def _delegate(call: conversation_pb2.ToolCallBlock) -> pb.GraphDecision | None:
    args = _parse_args(call.args)
    if isinstance(args, str):
        return None
    agent_kind = args.get("agent_kind")
    task = args.get("task")
    if not isinstance(agent_kind, str) or not is_id(agent_kind) or not isinstance(task, str):
        return None
    return pb.GraphDecision(
        delegate=pb.GraphDecision.Delegate(agent_kind=agent_kind, task=task, call_id=call.id)
    )


def _switch(
    call: conversation_pb2.ToolCallBlock, paradigms: Collection[str] | None
) -> pb.GraphDecision | None:
    args = _parse_args(call.args)
    paradigm = None if isinstance(args, str) else args.get("paradigm")
    if not isinstance(paradigm, str) or not is_id(paradigm):
        return None
    if paradigms is not None and paradigm not in paradigms:
        return None
    return pb.GraphDecision(
        switch_paradigm=pb.GraphDecision.SwitchParadigm(paradigm=paradigm, call_id=call.id)
    )


def _schema_problem(tool: OfferedTool | None, args: JsonValue) -> str | None:
    if tool is None or not tool.input_schema:
        return None
    try:
        return schemas.check(tool.input_schema, args)
    except schemas.SchemaError:
        # Schemas are compiled before they are offered. One that a later version can't take is no fault of the model's,
        # and the executor that declared it checks its arguments too.
        return None


def _judge_reserved(call: conversation_pb2.ToolCallBlock) -> str:
    """Say why a reserved tool was not carried out. No executor has it, so its call is never one that may run."""
    if call.name == DELEGATE:
        made = _delegate(call)
        wanted = "agent_kind (the name of a kind of agent) and task (text)"
    else:
        made = _switch(call, None)
        wanted = "paradigm (the name of a paradigm)"
    if made is None:
        return f"The arguments of {call.name} can't be used: it takes {wanted}."
    return f"{call.name} was not carried out: nothing in this graph does what it asks for."


def _unknown_tool(name: str, offered: Mapping[str, OfferedTool]) -> str:
    shown = json.dumps(name[:64], ensure_ascii=False)
    if not offered:
        return f"There is no tool named {shown}; no tools are available."
    known = sorted(offered)
    listed = ", ".join(known[:MAX_LISTED_TOOLS])
    more = len(known) - MAX_LISTED_TOOLS
    return f"There is no tool named {shown}. There is: {listed}" + (
        f", and {more} more." if more > 0 else "."
    )


def _parse_args(text: str) -> dict[str, JsonValue] | str:
    """Return the arguments, or what is wrong with them."""
    try:
        args = json_text.parse(text or "{}", _ARGS_LIMITS)
    except json_text.JsonTextError as error:
        return f"they are not JSON: {error}"
    if not isinstance(args, dict):
        return "they are not a JSON object"
    return args


def _matches(patterns: Sequence[str], name: str) -> bool:
    return any(
        name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
        for pattern in patterns
    )
