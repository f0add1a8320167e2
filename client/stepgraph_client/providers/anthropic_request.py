"""An LlmRequest as the body of a request to Anthropic's messages API.

Rules: what the API would refuse for its form is put into a form that it takes, as long as that means the same: neighbours of one role
become one message, results of tools go to the front of the user's, empty texts are left out. What it has no form for is a
failure that names the field; nothing that was asked is left out silently.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from anthropic import transform_schema

from stepgraph.v1.conversation_pb2 import ROLE_ASSISTANT, ROLE_SYSTEM
from stepgraph_client.providers import anthropic_blocks
from stepgraph_client.providers.contents import text_of, unsupported
from stepgraph_client.providers.options import options_of
from stepgraph_client.task_errors import Failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepgraph.v1.conversation_pb2 import Message
    from stepgraph.v1.llm_pb2 import LlmRequest, ToolDefinition
    from stepgraph_client.providers.anthropic_blocks import Names
    from stepgraph_client.task_context import TaskContext

#: JSON, as the SDK takes it.
Body: TypeAlias = "dict[str, Any]"

#: The version of the API that this was written for.
API_VERSION: Final = "2026-10-21"
#: From this version on a request with a temperature is refused, for every model.
_NO_TEMPERATURE_FROM: Final = "2026-10-21"
#: The API has no default. Every model since 2024 takes this many, and few replies are longer.
DEFAULT_MAX_TOKENS: Final = 8192

_RESERVED: Final[Mapping[str, str]] = {
    "max_tokens": "the field `max_tokens`",
    "messages": "the field `messages`",
    "model": "the field `model`",
    "stream": "nothing: replies are always streamed",
    "system": "the field `system_prompt`",
    "temperature": "the field `temperature`",
    "tool_choice": "the field `tool_choice`",
    "tools": "the field `tools`",
}
_NO_TOOLS: Final = {"type": "none"}
#: `claude-3-7-sonnet-…`, `claude-sonnet-4-5-…`: the first one or two short numbers of a name.
_GENERATION: Final = re.compile(r"(?<![0-9])(\d{1,2})(?:[-.](\d{1,2}))?(?![0-9])")
_FIRST_WITHOUT_BUDGETS: Final = (4, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What holds for all requests of an endpoint.

    Attributes:
        api_version: The version of the API, as its header `anthropic-version` has it.
        max_tokens: The limit where a request has none. A thinking budget comes on top.
    """

    api_version: str = API_VERSION
    max_tokens: int = DEFAULT_MAX_TOKENS


async def body_of(
    model: str, request: LlmRequest, names: Names, ctx: TaskContext, terms: Terms
) -> Body:
    """Return the body of a request.

    Raises:
        Failed: CONTENT_UNSUPPORTED, OPTIONS_INVALID or REQUEST_REJECTED; there is no form for what is asked.
        Unreachable: A stored value can't be read.
    """
    options = options_of(request.provider_options, _RESERVED)
    system, messages = await _conversation(request, names, ctx)
    body: Body = {
        "model": model,
        "max_tokens": _max_tokens(request, terms),
        "messages": messages,
        "stream": True,
    }
    if system:
        body["system"] = system
    if request.HasField("temperature"):
        body["temperature"] = _temperature(request, terms)
    if request.HasField("thinking_budget"):
        body["thinking"] = _thinking(model, request.thinking_budget)
    body |= _tools(request, names)
    if request.output_schema:
        body["output_config"] = {"format": _output_format(request.output_schema)}
    return _with_options(body, options)


def _max_tokens(request: LlmRequest, terms: Terms) -> int:
    if request.HasField("max_tokens"):
        return request.max_tokens
    # Thoughts count against the limit: who asks for them must not get a shorter answer.
    return terms.max_tokens + request.thinking_budget


def _temperature(request: LlmRequest, terms: Terms) -> float:
    # Versions are dates, so they compare as texts do.
    if terms.api_version >= _NO_TEMPERATURE_FROM:
        why = (
            f"Anthropic's API takes none since its version {_NO_TEMPERATURE_FROM}. Leave `temperature` out; "
            "or, for a model that still takes one, host it with the API version 2023-06-01"
        )
        raise _rejected("temperature", why)
    return request.temperature


def _thinking(model: str, budget: int) -> Body:
    """Return how a model is told to think: models up to 4.5 take a budget; later ones measure it themselves, and refuse one."""
    found = _GENERATION.search(model) if "claude" in model else None
    generation = (int(found[1]), int(found[2] or 0)) if found else None
    if generation is not None and generation >= _FIRST_WITHOUT_BUDGETS:
        # "summarized": without it some models show no thoughts at all.
        return {"type": "adaptive", "display": "summarized"}
    return {"type": "enabled", "budget_tokens": budget}


def _output_format(schema: str) -> Body:
    # The API compiles a part of JSON Schema; `transform_schema` turns the rest into words for the model. The server checks
    # the reply against the schema as it was given.
    try:
        parsed = json.loads(schema)
        return {"type": "json_schema", "schema": transform_schema(parsed)}
    except (ValueError, TypeError, AttributeError, AssertionError, RecursionError) as error:
        raise _rejected("output_schema", f"Anthropic's API can't use it: {error}") from error


def _with_options(body: Body, options: Mapping[str, object]) -> Body:
    """Return the body with the options over it; `output_config` is merged by its names, so that an effort keeps the schema."""
    own, given = body.get("output_config"), options.get("output_config")
    merged = {**body, **options}
    if own and isinstance(given, dict):
        merged["output_config"] = {**own, **given}
    return merged


def _tools(request: LlmRequest, names: Names) -> Body:
    if request.tools:
        tools = [
            _tool(tool, names, f"tools[{at}].input_schema") for at, tool in enumerate(request.tools)
        ]
        return {"tools": tools, "tool_choice": _tool_choice(request, names)}
    used = sorted(
        {
            block.tool_call.name
            for message in request.messages
            for block in message.content
            if block.HasField("tool_call")
        }
    )
    if not used:
        return {}
    # Calls in the history need definitions, though none of these tools may be called now.
    bare = [{"name": names.tools.out(name), "input_schema": {"type": "object"}} for name in used]
    return {"tools": bare, "tool_choice": _NO_TOOLS}


def _tool(tool: ToolDefinition, names: Names, schema_path: str) -> Body:
    definition: Body = {"name": names.tools.out(tool.name), "input_schema": {"type": "object"}}
    if tool.description:
        definition["description"] = tool.description
    if tool.input_schema:
        try:
            definition["input_schema"] = json.loads(tool.input_schema)
        except (ValueError, RecursionError) as error:
            raise _rejected(schema_path, f"it is not JSON: {error}") from error
    return definition


def _tool_choice(request: LlmRequest, names: Names) -> Body:
    match request.tool_choice.WhichOneof("kind"):
        case "required":
            return {"type": "any"}
        case "named":
            return {"type": "tool", "name": names.tools.out(request.tool_choice.named.name)}
        case "forbidden":
            return dict(_NO_TOOLS)
        case "auto" | None:
            return {"type": "auto"}


async def _conversation(
    request: LlmRequest, names: Names, ctx: TaskContext
) -> tuple[str, list[Body]]:
    """Return the system prompt, with what messages of the system say, and the other messages."""
    system = [request.system_prompt]
    turns: list[Body] = []
    for at, message in enumerate(request.messages):
        path = f"messages[{at}]"
        if message.role == ROLE_SYSTEM:
            system += await _instructions(message, ctx, path)
            continue
        role = "assistant" if message.role == ROLE_ASSISTANT else "user"
        blocks = await anthropic_blocks.of_message(message, names, ctx, path)
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    return "\n\n".join(text for text in system if text), [_results_first(turn) for turn in turns]


async def _instructions(message: Message, ctx: TaskContext, path: str) -> list[str]:
    texts = []
    for index, block in enumerate(message.content):
        where = f"{path}.content[{index}]"
        if block.WhichOneof("kind") != "text":
            raise unsupported(where, "Anthropic's API takes only text as instructions")
        texts.append(await text_of(block.text, ctx, where))
    return texts


def _results_first(turn: Body) -> Body:
    blocks = sorted(turn["content"], key=lambda block: block["type"] != "tool_result")
    return {**turn, "content": blocks}


def _rejected(field: str, why: str) -> Failed:
    message = f"{field}: {why}"
    return Failed("REQUEST_REJECTED", message, retryable=False, details={"field": field})
