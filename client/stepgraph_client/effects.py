"""What a step program asks for: model calls, tool calls, agents, graphs, sleeps, work of custom kinds.

    hits = await effects.tool("search", {"query": "grpc"})
    reply = await effects.llm("Sum it up: " + str(hits), model="m")

Rules: an effect is a plain frozen value. Nothing happens until a program awaits it, or answers with a transition that asks for it;
then the server has it done, journals the result, and polls the program with it. What fails for good is raised where it is awaited.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final, Generic, TypedDict, TypeVar, Unpack

from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import TypeAdapter

from stepgraph.v1 import failure_pb2, llm_pb2, transition_pb2, value_pb2
from stepgraph.v1.conversation_pb2 import (
    ROLE_TOOL,
    ContentBlock,
    Message,
    TextBlock,
    ToolResultBlock,
)
from stepgraph_client.durations import Span, to_duration
from stepgraph_client.errors import StepgraphError
from stepgraph_client.graphs import GraphSource, graph_ref
from stepgraph_client.json_text import JsonLike, to_json_text
from stepgraph_client.keywords import check_names
from stepgraph_client.pauses import Pause, awaiting
from stepgraph_client.requests import as_message
from stepgraph_client.task_errors import Failed
from stepgraph_client.values import from_value, read_as, to_value

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from stepgraph.v1 import conversation_pb2, policy_pb2

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

#: The code of what a tool reported as an error, as everywhere in the schema.
TOOL_ERROR: Final = "TOOL_ERROR"
UNKNOWN_VARIANT: Final = "UNKNOWN_VARIANT"


class EffectFailed(StepgraphError):
    """An effect, or spawned work, failed for good; or a tool reported an error. Expected: catch it and go on.

    A program that does not catch it fails with it: its node ends with the same code.

    Attributes:
        failure: Why, with its code, category and causes.
        label: What it was, such as "tool search".
        result: What was told of it. If a tool reported the error, `result.tool.result` is what it said.
    """

    def __init__(self, failure: failure_pb2.Failure, result: transition_pb2.EffectResult) -> None:
        super().__init__(f"{result.label or 'it'}: {failure.code}: {failure.message}")
        self.failure = failure
        self.label = result.label
        self.result = result

    @property
    def code(self) -> str:
        """The failure's code."""
        return self.failure.code


# By identity: messages can't be hashed, and asyncio hashes what it is to await.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Effect(Generic[R_co]):
    """Something that a step program asks for. Await it, or hand it to a transition; see this module for how they are made.

    Attributes:
        message: The effect in the schema's words.
        read: What awaiting it gives, of its result. Raises EffectFailed.
    """

    message: transition_pb2.Effect
    read: Callable[[transition_pb2.EffectResult], R_co]

    def returning(self, kind: type[T]) -> Effect[T]:
        """Return the same effect, whose result is read as a pydantic model, a dataclass, or any type that pydantic can check.

        What does not fit is a pydantic.ValidationError where it is awaited.
        """

        def read(result: transition_pb2.EffectResult) -> T:
            value = value_in(result)
            if result.HasField("llm"):
                return TypeAdapter(kind).validate_json(value.text)
            return read_as(value, kind)

        return Effect(message=self.message, read=read)

    def options(
        self,
        *,
        retry: policy_pb2.RetryPolicy | None = None,
        limits: policy_pb2.TaskLimits | None = None,
        selector: Mapping[str, str] | None = None,
    ) -> Effect[R_co]:
        """Return the same effect with other tries, limits or labels that its executor must bear; absent means the node's."""
        message = transition_pb2.Effect()
        message.CopyFrom(self.message)
        message.options.CopyFrom(
            transition_pb2.EffectOptions(retry=retry, limits=limits, selector=selector)
        )
        return replace(self, message=message)

    def __await__(self) -> Generator[object, object, R_co]:
        results = yield from awaiting(await_effects(self))
        return self.read(results[0])


def await_effects(
    *wanted: Effect[object], each: bool = False
) -> Pause[tuple[transition_pb2.EffectResult, ...]]:
    """Return a wait for effects at once, whose value is their results as they are, in order.

    Args:
        wanted: The effects. None waits for those of earlier turns that still go on.
        each: Wake as soon as some have ended.

    Raises:
        TypeError: One is no effect.
    """
    for one in wanted:
        if not isinstance(one, Effect):
            message = (
                "what is awaited at once are effects: ctx.tool(…), ctx.llm(…), ctx.sleep(…) and so on, each an argument of its own "
                f"(`*effects` for a list); ctx.ask, ctx.spawn and the like are awaited by themselves; found {type(one).__name__}"
            )
            raise TypeError(message)
    wake = transition_pb2.WAKE_POLICY_EACH if each else transition_pb2.WAKE_POLICY_ALL
    awaited = transition_pb2.Transition.Await(effects=[one.message for one in wanted], wake=wake)
    return Pause(
        transition=transition_pb2.Transition(await_effects=awaited), read=lambda results: results
    )


# ---- model calls ------------------------------------------------------------------------------------


class ModelOptions(TypedDict, total=False):
    """What `llm` takes; see `stepgraph.v1.LlmRequest`.

    `include_conversation` puts the run's conversation before `messages`. `tools` are definitions, or functions as
    `executor.tool` takes them.
    """

    messages: Sequence[str | conversation_pb2.Message]
    include_conversation: bool
    model: str
    system_prompt: str
    tools: Sequence[llm_pb2.ToolDefinition | Callable[..., object]]
    tool_choice: llm_pb2.ToolChoice
    temperature: float
    max_tokens: int
    thinking_budget: int
    output_schema: JsonLike
    streaming: bool
    provider_options: JsonLike


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """What a model replied; `response` is all of it, `str(reply)` its text."""

    response: llm_pb2.LlmResponse

    @property
    def message(self) -> conversation_pb2.Message:
        """The reply as a message, to be appended to a conversation."""
        return self.response.message

    @property
    def text(self) -> str:
        """Its text. Raises ValueError if it is so long that it was stored; `ctx.text_of(block)` reads it then."""
        return text_in(self.response.message)

    @property
    def calls(self) -> tuple[conversation_pb2.ToolCallBlock, ...]:
        """The tool calls that it asks for, in order."""
        blocks = self.response.message.content
        return tuple(block.tool_call for block in blocks if block.HasField("tool_call"))

    def answered(self, results: Sequence[object]) -> conversation_pb2.Message:
        """Return the message that tells the model what came of its calls, in their order; it goes behind `message`.

        Args:
            results: Values, or an EffectFailed for what failed, as `ctx.settled` gives them.

        Raises:
            ValueError: There are more or fewer results than calls, which providers refuse.
        """
        if len(results) != len(self.calls):
            message = f"the reply has {len(self.calls)} calls, and there are {len(results)} results"
            raise ValueError(message)
        pairs = zip(self.calls, results, strict=True)
        return Message(role=ROLE_TOOL, content=[_answer(call, result) for call, result in pairs])

    @property
    def usage(self) -> llm_pb2.Usage:
        """What it cost."""
        return self.response.usage

    def __str__(self) -> str:
        return self.text


def llm(prompt: str = "", **options: Unpack[ModelOptions]) -> Effect[ModelReply]:
    """Ask a model: `prompt` is a last user message, behind the conversation and `messages` if they are given."""
    check_names("llm()", options, ModelOptions)
    messages = [as_message(each) for each in options.get("messages", ())]
    if prompt:
        messages.append(as_message(prompt))
    request = llm_pb2.LlmRequest(
        model=options.get("model", ""),
        system_prompt=options.get("system_prompt", ""),
        messages=messages,
        include_conversation=options.get("include_conversation", False),
        tools=[_definition(each) for each in options.get("tools", ())],
        tool_choice=options.get("tool_choice"),
        temperature=options.get("temperature"),
        max_tokens=options.get("max_tokens"),
        thinking_budget=options.get("thinking_budget"),
        output_schema=to_json_text(options.get("output_schema", "")),
        streaming=options.get("streaming", False),
        provider_options=to_json_text(options.get("provider_options", "")),
    )
    return Effect(
        message=transition_pb2.Effect(llm=transition_pb2.Effect.Llm(request=request)),
        read=lambda result: ModelReply(response=_ended(result).llm.response),
    )


def _answer(call: conversation_pb2.ToolCallBlock, result: object) -> ContentBlock:
    failed = isinstance(result, EffectFailed)
    if isinstance(result, EffectFailed):
        reported = result.code == TOOL_ERROR
        text = result.failure.message if reported else f"{result.code}: {result.failure.message}"
    else:
        text = _as_text(result)
    return ContentBlock(
        tool_result=ToolResultBlock(
            call_id=call.id,
            provider_id=call.provider_id,
            content=[ContentBlock(text=TextBlock(text=text))],
            is_error=failed,
        )
    )


def _definition(tool: llm_pb2.ToolDefinition | Callable[..., object]) -> llm_pb2.ToolDefinition:
    if isinstance(tool, llm_pb2.ToolDefinition):
        return tool
    # Here, because it brings pydantic's schemas along, which most programs don't need.
    from stepgraph_client.tools import tool_of  # noqa: PLC0415

    return tool_of(tool).definition


# ---- everything else --------------------------------------------------------------------------------


def tool(name: str, args: JsonLike | None = None, /, **arguments: object) -> Effect[object]:
    """Call a tool, with its arguments by name, or as one object, or as JSON text. Its output is the value.

    A tool that reports an error raises EffectFailed with the code TOOL_ERROR.

    Raises:
        TypeError: Arguments are given in both ways, or have no JSON.
    """
    if args is not None and arguments:
        message = f"tool {name}: give its arguments by name or as one object, not both"
        raise TypeError(message)
    text = to_json_text(args) if args is not None else to_value(arguments).json
    called = transition_pb2.Effect.Tool(name=name, args=text)
    return _plain(transition_pb2.Effect(tool=called))


def delegate(agent_kind: str, task: str) -> Effect[object]:
    """Hand a task to an agent; its output is the value."""
    handed = transition_pb2.Effect.Delegate(agent_kind=agent_kind, task=task)
    return _plain(transition_pb2.Effect(delegate=handed))


def graph(source: GraphSource, graph_input: object = None) -> Effect[object]:
    """Run a graph as a child run: by reference, inline, or as it is being built. Its output is the value."""
    value = None if graph_input is None else to_value(graph_input)
    child = transition_pb2.Effect.Graph(graph_ref=graph_ref(source), input=value)
    return _plain(transition_pb2.Effect(graph=child))


def custom(kind: str, payload: object = None) -> Effect[object]:
    """Have work of a custom kind done by an executor that declares `@executor.effect(kind)`; what it returns is the value."""
    value = None if payload is None else to_value(payload)
    return _plain(
        transition_pb2.Effect(custom=transition_pb2.Effect.Custom(kind=kind, payload=value))
    )


def sleep(how_long: Span | datetime) -> Effect[None]:
    """Wait for a time ("30s", a timedelta), or until a time (an aware datetime). It outlives restarts, and costs nothing meanwhile.

    Raises:
        ValueError: The datetime has no time zone, or the text is no length of time.
    """
    if isinstance(how_long, datetime):
        if how_long.tzinfo is None:
            message = f"{how_long} has no time zone; give it one, such as UTC"
            raise ValueError(message)
        until = Timestamp()
        until.FromDatetime(how_long)
        pause = transition_pb2.Effect.Sleep(until=until)
    else:
        pause = transition_pb2.Effect.Sleep(duration=to_duration(how_long))

    def read(result: transition_pb2.EffectResult) -> None:
        _ended(result)

    return Effect(message=transition_pb2.Effect(sleep=pause), read=read)


def _plain(message: transition_pb2.Effect) -> Effect[object]:
    return Effect(message=message, read=outcome)


# ---- results ----------------------------------------------------------------------------------------


def outcome(result: transition_pb2.EffectResult) -> object:
    """Return what a result has, as Python has it; of a model's reply its text, of a signal's payloads a list.

    Raises:
        EffectFailed: It failed, or is the error that a tool reported.
    """
    if _ended(result).HasField("answer"):
        values = [from_value(value) for value in result.answer.values]
        return values[0] if len(values) == 1 else values
    return from_value(value_in(result))


def value_in(result: transition_pb2.EffectResult) -> value_pb2.Value:
    """Return what a result has, as a Value; an empty one if it has nothing. Raises as `outcome`.

    What a tool gave to the model only (content without an output) is its text.
    """
    kind = _ended(result).WhichOneof("kind")
    match kind:
        case "llm":
            return value_pb2.Value(text=text_in(result.llm.response.message))
        case "tool":
            given = result.tool.result
            if given.HasField("output") or not given.content:
                return given.output
            return value_pb2.Value(text=_joined(given.content))
        case "agent":
            return result.agent.output
        case "graph":
            return result.graph.output
        case "node":
            return result.node.output
        case "custom":
            return result.custom.output
        case "answer":
            return result.answer.values[0] if result.answer.values else value_pb2.Value()
        case _:
            # A sleep, which has nothing to say.
            return value_pb2.Value()


def text_in(message: conversation_pb2.Message) -> str:
    """Return the text of a message: that of its text blocks, joined.

    Raises:
        ValueError: Some of it is so long that it was stored.
    """
    return _joined(message.content)


def _joined(blocks: Sequence[conversation_pb2.ContentBlock]) -> str:
    texts = [block.text for block in blocks if block.HasField("text")]
    if any(text.WhichOneof("body") == "stored" for text in texts):
        message = "the text is so long that it was stored; read it with `await ctx.text_of(block)`"
        raise ValueError(message)
    return "".join(text.text for text in texts)


def _ended(result: transition_pb2.EffectResult) -> transition_pb2.EffectResult:
    """Return a result that is none of a failure. Raises EffectFailed, and Failed if it is of a kind that is newer than this."""
    if result.WhichOneof("kind") is None:
        # It must not be taken for an empty one, by which a program would go on.
        message = f"{result.label or 'something'} has a result of a kind that this version does not know; upgrade stepgraph"
        raise Failed(UNKNOWN_VARIANT, message, retryable=False)
    if result.HasField("failed"):
        raise EffectFailed(result.failed.failure, result)
    if result.tool.result.is_error:
        raise EffectFailed(_reported(result.tool.result), result)
    return result


def _reported(given: transition_pb2.ToolResult) -> failure_pb2.Failure:
    said = (
        _as_text(from_value(given.output)) if given.HasField("output") else _joined(given.content)
    )
    return failure_pb2.Failure(
        code=TOOL_ERROR,
        category=failure_pb2.FAILURE_CATEGORY_BUSINESS,
        message=said,
    )


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
