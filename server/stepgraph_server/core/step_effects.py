"""Effects of step programs as work for executors.

Rules: what an effect becomes follows from the recorded reply and the view that the program had then, so it can be made again
after a restart. Labels name what is done, never with what.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import llm_pb2, run_pb2, task_pb2
from stepgraph_server.core import canonical, wire
from stepgraph_server.core.actions.inputs import ReadyInput, agent_input, tool_input
from stepgraph_server.core.actions.step import MAX_RENDERED_BYTES, Child, Effect
from stepgraph_server.core.actions.subgraph import child_label
from stepgraph_server.core.conversation import Conversation
from stepgraph_server.core.decisions import OfferedTool
from stepgraph_server.core.instants import after, from_duration, from_timestamp, seconds_text
from stepgraph_server.core.state import ToolSet
from stepgraph_server.core.templates import Template
from stepgraph_server.core.view import View, with_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph.v1 import conversation_pb2, transition_pb2
    from stepgraph_server.core.instants import Instant
    from stepgraph_server.core.state import Activation, RunState
    from stepgraph_server.core.step_program import OpenEffect

#: TaskInput.llm
_LLM_FIELD: Final = 1


@dataclass(slots=True, kw_only=True)
class RequestInput:
    """The request of a model call that a program awaits."""

    #: A serialized LlmRequest without messages.
    head: bytes
    messages: Sequence[conversation_pb2.Message]
    #: The messages that the program had appended when it asked; None if it did not ask for the conversation.
    own: Sequence[conversation_pb2.Message] | None

    def build(self, state: RunState) -> bytes:
        """Return the serialized TaskInput, with all messages arranged as one conversation."""
        if self.own is None:
            conversation = with_messages(Conversation(), self.messages)
        else:
            conversation = with_messages(state.conversation, [*self.own, *self.messages])
        return wire.length_delimited(
            _LLM_FIELD, b"".join([self.head, *conversation.arrange().parts])
        )


def effect_of(state: RunState, activation: Activation, opened: OpenEffect) -> Effect:
    """Return an effect that executors perform. Raises RenderError where the graph's default model can't be rendered."""
    effect = opened.effect
    match effect.WhichOneof("kind"):
        case "llm":
            made = _model_call(state, activation, opened)
        case "tool":
            tool = effect.tool
            made = Effect(
                key=("tool", tool.name, ""),
                label=f"tool {tool.name}",
                prepared=tool_input(tool.name, tool.args, ""),
            )
        case "delegate":
            kind = effect.delegate.agent_kind
            made = Effect(
                key=("agent", kind),
                label=f"agent {kind}",
                prepared=agent_input(kind, effect.delegate.task),
            )
        case "custom":
            kind = effect.custom.kind
            made = Effect(key=("effect", kind), label=f"effect {kind}", prepared=_custom(effect))
        case other:
            message = f"an effect that nobody performs: {other}"
            raise AssertionError(message)
    if effect.HasField("options"):
        made.options = effect.options
    return made


def child_of(state: RunState, effect: transition_pb2.Effect) -> Child:
    """Return a graph as an effect: a child run, whose input is its variable `input` and its first last_result."""
    graph = effect.graph
    given = run_pb2.RunInput()
    if graph.input.WhichOneof("kind") is not None:
        given.value.CopyFrom(graph.input)
    limits = effect.options.limits
    spans = [
        from_duration(limit)
        for limit, is_set in (
            (limits.run, limits.HasField("run")),
            (limits.total, limits.HasField("total")),
        )
        if is_set
    ]
    return Child(
        label=child_label(state, graph.graph_ref),
        graph=graph.graph_ref,
        input=given,
        time_limit=min(spans, default=None),
        options=effect.options if effect.HasField("options") else None,
    )


def sleeps(effect: transition_pb2.Effect) -> bool:
    """Whether an effect needs no executor."""
    return effect.HasField("sleep")


def sleep_end(sleep: transition_pb2.Effect.Sleep, start: Instant) -> Instant:
    """Return when a sleep is over that began at `start`."""
    if sleep.WhichOneof("kind") == "until":
        return from_timestamp(sleep.until)
    return after(start, from_duration(sleep.duration))


def sleep_label(sleep: transition_pb2.Effect.Sleep) -> str:
    """Return what a sleep is, for people."""
    if sleep.WhichOneof("kind") == "until":
        return f"sleep until {sleep.until.ToJsonString()}"
    return f"sleep {seconds_text(from_duration(sleep.duration))}"


def _custom(effect: transition_pb2.Effect) -> ReadyInput:
    custom = effect.custom
    made = task_pb2.TaskInput.Effect(
        kind=custom.kind, payload=custom.payload if custom.HasField("payload") else None
    )
    return ReadyInput(task_pb2.TaskInput(effect=made).SerializeToString())


def _model_call(state: RunState, activation: Activation, opened: OpenEffect) -> Effect:
    request = opened.effect.llm.request
    model = request.model
    if not model:
        view = View(state, activation.carried, activation.delta)
        template = Template.compile(state.graph.default_model)
        model = template.render(view, max_bytes=MAX_RENDERED_BYTES)
    head = llm_pb2.LlmRequest()
    head.CopyFrom(request)
    head.model = model
    head.ClearField("messages")
    head.ClearField("include_conversation")
    own = activation.delta.messages[: opened.messages] if request.include_conversation else None
    seen = len(state.conversation) + opened.messages if own is not None else 0
    return Effect(
        key=("llm", model),
        label=f"llm {model}",
        prepared=RequestInput(head=head.SerializeToString(), messages=request.messages, own=own),
        message_count=seen + len(request.messages),
        prompt_digest=canonical.digest_text(request.system_prompt) if request.system_prompt else "",
        tools=_tool_set(request.tools),
        spends_tokens=True,
        streaming=request.streaming,
    )


def _tool_set(tools: Sequence[llm_pb2.ToolDefinition]) -> ToolSet | None:
    """Return what a program offers to a model, so that calls which it decides on later are judged by that."""
    if not tools:
        return None
    lines = [f"{each.name} {canonical.digest(each)} any" for each in tools]
    return ToolSet(
        digest=canonical.digest_text("\n".join(lines)),
        definitions=tuple(tools),
        offered={
            each.name: OfferedTool(name=each.name, input_schema=each.input_schema) for each in tools
        },
    )


__all__ = ["RequestInput", "child_of", "effect_of", "sleep_end", "sleep_label", "sleeps"]
