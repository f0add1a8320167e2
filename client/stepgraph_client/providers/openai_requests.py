"""An LlmRequest as the body of a chat completion.

Rules: a field that is absent is not sent, so that the model's own default holds. `provider_options` come last and win over what
stands here, but for what other fields decide.

| field | body |
|---|---|
| `max_tokens` | `max_completion_tokens` at OpenAI's own models, else `max_tokens` |
| `thinking_budget` | `reasoning_effort`: 0 `none`, up to 2048 `low`, up to 8192 `medium`, above `high`; absent: nothing, and the model's default |
| `output_schema` | `response_format`, strict where the schema is one that strict mode takes |
| `tool_choice` | `auto`, `none`, `required`, or the one function |
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from stepgraph_client.providers.openai_messages import Messages
from stepgraph_client.providers.options import options_of
from stepgraph_client.task_errors import Failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepgraph.v1.llm_pb2 import LlmRequest, ToolDefinition
    from stepgraph_client.providers.openai_dialect import Dialect
    from stepgraph_client.providers.openai_messages import Entry
    from stepgraph_client.providers.tool_names import ToolNames
    from stepgraph_client.task_context import TaskContext

REQUEST_REJECTED: Final = "REQUEST_REJECTED"

#: The largest budget for each effort.
_EFFORTS: Final = ((0, "none"), (2048, "low"), (8192, "medium"))
_HIGHEST_EFFORT: Final = "high"

_RESERVED: Final[Mapping[str, str]] = {
    "model": "the field `model`",
    "messages": "the fields `messages` and `system_prompt`",
    "tools": "the field `tools`",
    "tool_choice": "the field `tool_choice`",
    "temperature": "the field `temperature`",
    "max_tokens": "the field `max_tokens`",
    "max_completion_tokens": "the field `max_tokens`",
    "stream": "the field `streaming`",
    "stream_options": "the field `streaming`",
    "n": "several calls: a reply has one message",
}

#: What strict mode knows of JSON Schema; with anything else the provider refuses the request.
_STRICT_WORDS: Final = frozenset(
    {
        *("type", "properties", "required", "additionalProperties", "items", "enum", "const"),
        *("anyOf", "$ref", "$defs", "title", "description"),
    }
)


async def body_of(
    request: LlmRequest, ctx: TaskContext, names: ToolNames, dialect: Dialect
) -> Entry:
    """Return the body, but for `model` and `stream`.

    Raises:
        Failed: The request can't be made: OPTIONS_INVALID, CONTENT_UNSUPPORTED, REQUEST_REJECTED.
        Unreachable: A stored value can't be read.
    """
    options = options_of(request.provider_options, _RESERVED)
    body: Entry = {"messages": await Messages(ctx, names, dialect).of(request)}
    if request.tools:
        body["tools"] = [_tool(tool, names) for tool in request.tools]
    body |= _tool_choice(request, names)
    if request.HasField("temperature"):
        body["temperature"] = request.temperature
    if request.HasField("max_tokens"):
        body[dialect.max_tokens_field] = request.max_tokens
    if request.HasField("thinking_budget"):
        body["reasoning_effort"] = effort_of(request.thinking_budget)
    if request.output_schema:
        body["response_format"] = _response_format(request.output_schema)
    if request.streaming and dialect.asks_for_usage:
        body["stream_options"] = {"include_usage": True}
    return body | options


def effort_of(budget: int) -> str:
    """Return how hard a model should think that has so many tokens for it."""
    for largest, effort in _EFFORTS:
        if budget <= largest:
            return effort
    return _HIGHEST_EFFORT


def is_strict(schema: object) -> bool:
    """Return whether strict mode takes a schema: every object names all it has, and no other word is used."""
    if not isinstance(schema, dict) or not schema.keys() <= _STRICT_WORDS:
        return False
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        is_closed = schema.get("additionalProperties") is False
        if not is_closed or set(schema.get("required", ())) != set(properties):
            return False
    parts = [
        *schema.get("properties", {}).values(),
        *schema.get("$defs", {}).values(),
        *schema.get("anyOf", ()),
        *([schema["items"]] if "items" in schema else ()),
    ]
    return all(map(is_strict, parts))


def _response_format(text: str) -> Entry:
    schema = _json_object(text, "output_schema")
    # The root of a strict schema is an object, and nothing else.
    strict = schema.get("type") == "object" and is_strict(schema)
    return {
        "type": "json_schema",
        "json_schema": {"name": "reply", "schema": schema, "strict": strict},
    }


def _tool(tool: ToolDefinition, names: ToolNames) -> Entry:
    function: Entry = {"name": names.out(tool.name)}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = (
        _json_object(tool.input_schema, f"tools[{tool.name}].input_schema")
        if tool.input_schema
        else {"type": "object", "properties": {}}
    )
    return {"type": "function", "function": function}


def _tool_choice(request: LlmRequest, names: ToolNames) -> Entry:
    kind = request.tool_choice.WhichOneof("kind")
    if not request.tools:
        if kind in {"required", "named"}:
            message = (
                "tool_choice wants a call, and there are no tools: offer some, or leave it out"
            )
            raise Failed(
                REQUEST_REJECTED, message, retryable=False, details={"field": "tool_choice"}
            )
        return {}  # the API refuses a choice without tools
    match kind:
        case "forbidden":
            return {"tool_choice": "none"}
        case "required":
            return {"tool_choice": "required"}
        case "named":
            function = {"name": names.out(request.tool_choice.named.name)}
            return {"tool_choice": {"type": "function", "function": function}}
        case _:
            return {}  # it decides by itself, as it does for a choice that is newer than this


def _json_object(text: str, path: str) -> dict[str, object]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        content = error
    if isinstance(content, dict):
        return content
    message = f"{path} must be the text of a JSON object: {content}"
    raise Failed(REQUEST_REJECTED, message[:500], retryable=False, details={"field": path})
