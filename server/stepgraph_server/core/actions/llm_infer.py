"""LlmInfer: asks a model; the reply is appended to the conversation and parsed into a decision.

Rules: what was offered to the model is recorded with the task, so that its calls are judged by that. The request is put
together from bytes that exist already, so that a long conversation costs no more per call than a short one, apart from
being sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepgraph.v1 import conversation_pb2, failure_pb2, graph_pb2, llm_pb2, value_pb2
from stepgraph_server.core import canonical, json_text, wire
from stepgraph_server.core.actions.messages import template_message, user_message
from stepgraph_server.core.actions.step import MAX_RENDERED_BYTES, Await, Done, Effect, Fail
from stepgraph_server.core.decisions import (
    OfferedTool,
    delegate_definition,
    filter_passes,
    parse_decision,
    reply_text,
    switch_paradigm_definition,
)
from stepgraph_server.core.inputs import ToolOffer
from stepgraph_server.core.names import is_reserved, is_variable
from stepgraph_server.core.requirements import both_selectors
from stepgraph_server.core.state import ToolSet
from stepgraph_server.core.templates import Template
from stepgraph_server.core.values import from_json
from stepgraph_server.core.view import with_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph_server.core.actions.step import Poll, Step
    from stepgraph_server.core.state import RunState

_LLM_FIELD = 1
_MESSAGES_FIELD = 3


@dataclass(slots=True, kw_only=True)
class ModelInput:
    """The request of a model call: everything but the conversation, which is added when it is sent."""

    #: A serialized LlmRequest without messages; its field order does not matter to a reader.
    head: bytes
    #: The serialized message that the node adds, or empty.
    prompt: bytes
    window: graph_pb2.ContextWindow | None
    #: What was appended to its view before it: by the program that spawned it.
    own: Sequence[conversation_pb2.Message] = ()

    def build(self, state: RunState) -> bytes:
        """Return the serialized TaskInput."""
        arranged = with_messages(state.conversation, self.own).arrange(self.window)
        parts = [self.head, *arranged.parts]
        if self.prompt:
            parts.append(wire.length_delimited(_MESSAGES_FIELD, self.prompt))
        return wire.length_delimited(_LLM_FIELD, b"".join(parts))


def poll(poll: Poll) -> Step:
    """Ask the model, then end with its reply."""
    if poll.turn == 0:
        return _ask(poll)
    result = poll.results[0]
    if isinstance(result, failure_pb2.Failure):
        return Fail(failure=result)
    return _finish(poll, result.llm.message)


@dataclass(slots=True, kw_only=True)
class _Request:
    """A request without its messages, and what it was made of. In a loop it is the same at every turn, so it is kept."""

    model: str
    prompt: str
    tools: ToolSet | None
    head: bytes
    prompt_digest: str


def _ask(poll: Poll) -> Step:
    action = _action(poll)
    request = _request(poll, action)
    added = _added_message(poll, action) if action.prompt_template else None
    effect = Effect(
        key=("llm", request.model),
        label=f"llm {request.model}",
        prepared=ModelInput(
            head=request.head,
            prompt=added.SerializeToString() if added is not None else b"",
            window=action.context if action.HasField("context") else None,
            own=poll.activation.delta.messages,
        ),
        message_count=len(poll.state.conversation)
        + len(poll.activation.delta.messages)
        + (added is not None),
        prompt_digest=request.prompt_digest,
        tools=request.tools,
        spends_tokens=True,
    )
    return Await((effect,))


def _request(poll: Poll, action: graph_pb2.NodeAction.LlmInfer) -> _Request:
    model = action.model or poll.state.graph.default_model
    if "{{" in model:
        model = _render(poll, model)
    prompt = _system_prompt(poll, action)
    tools = _tools(poll, action) if action.include_tool_definitions else None
    key = ("request", poll.activation.node.id)
    known = poll.state.caches.get(key)
    if (
        isinstance(known, _Request)
        and known.model == model
        and known.prompt == prompt
        and known.tools is tools
    ):
        return known
    request = _Request(
        model=model,
        prompt=prompt,
        tools=tools,
        head=_head(action, model, prompt, tools),
        prompt_digest=canonical.digest_text(prompt) if prompt else "",
    )
    poll.state.caches[key] = request
    return request


def _finish(poll: Poll, message: conversation_pb2.Message) -> Step:
    action = _action(poll)
    text = reply_text(message)
    decision = parse_decision(message, paradigms=poll.state.graph.paradigms)
    writes: tuple[tuple[str, value_pb2.Value | None], ...] = ()
    value = value_pb2.Value(text=text)
    if action.output_schema and decision.HasField("direct_answer"):
        value = value_pb2.Value(json=text)
        fields = json_text.parse(text)
        if isinstance(fields, dict):
            # What can't be a variable, or is the server's to write, a model must not write: it stays in the result.
            writes = tuple(
                (name, from_json(field))
                for name, field in sorted(fields.items())
                if is_variable(name) and not is_reserved(name)
            )
    added = _added_message(poll, action) if action.prompt_template else None
    messages = (message,) if added is None else (added, message)
    return Done(value=value, messages=messages, writes=writes, decision=decision, decides=True)


def _action(poll: Poll) -> graph_pb2.NodeAction.LlmInfer:
    action = poll.activation.node.action
    assert isinstance(action, graph_pb2.NodeAction.LlmInfer)
    return action


def _render(poll: Poll, text: str) -> str:
    return (
        Template.compile(text).render(poll.view, max_bytes=MAX_RENDERED_BYTES)
        if "{{" in text
        else text
    )


def _system_prompt(poll: Poll, action: graph_pb2.NodeAction.LlmInfer) -> str:
    if action.HasField("system_prompt_override"):
        return _render(poll, action.system_prompt_override)
    paradigm = poll.state.graph.paradigms.get(poll.view.carried.paradigm)
    return _render(poll, paradigm.system_prompt) if paradigm is not None else ""


def _added_message(poll: Poll, action: graph_pb2.NodeAction.LlmInfer) -> conversation_pb2.Message:
    node_id, text = poll.activation.node.id, action.prompt_template
    if "{{" in text:
        return template_message(poll.view, text, node_id)
    return user_message(text, node_id)


def _head(
    action: graph_pb2.NodeAction.LlmInfer, model: str, prompt: str, tools: ToolSet | None
) -> bytes:
    request = llm_pb2.LlmRequest(
        model=model,
        system_prompt=prompt,
        output_schema=action.output_schema,
        streaming=action.use_streaming,
        provider_options=action.provider_options,
        tools=tools.definitions if tools is not None else (),
    )
    for name in ("temperature", "max_tokens", "thinking_budget"):
        if action.HasField(name):
            setattr(request, name, getattr(action, name))
    if action.HasField("tool_choice"):
        request.tool_choice.CopyFrom(action.tool_choice)
    return request.SerializeToString()


def _tools(poll: Poll, action: graph_pb2.NodeAction.LlmInfer) -> ToolSet:
    """Return what the model is offered: as it was recorded if it was, else from what executors offer now."""
    state, activation = poll.state, poll.activation
    if activation.tools_digest:
        return state.tool_sets[activation.tools_digest]
    assert poll.world is not None, "tools that were offered are recorded with the task"
    offers = poll.world.tools(both_selectors(state.selector, activation.node.selector))
    key = ("tools", activation.node.id, poll.view.carried.paradigm)
    known = state.caches.get(key)
    # The catalogue gives the same object until it changes, so identity tells whether the set must be made again.
    if isinstance(known, tuple) and known[0] is offers:
        return known[1]  # type: ignore[no-any-return]  # put there below
    tools = _tool_set(state, _tool_filter(poll, action), offers)
    state.caches[key] = (offers, tools)
    return tools


def _tool_filter(poll: Poll, action: graph_pb2.NodeAction.LlmInfer) -> llm_pb2.ToolFilter | None:
    if action.HasField("tool_filter_override"):
        return action.tool_filter_override
    paradigm = poll.state.graph.paradigms.get(poll.view.carried.paradigm)
    return (
        paradigm.tool_filter if paradigm is not None and paradigm.HasField("tool_filter") else None
    )


def _tool_set(
    state: RunState, wanted: llm_pb2.ToolFilter | None, offers: tuple[ToolOffer, ...]
) -> ToolSet:
    graph = state.graph
    # Where an executor has a tool of the same name, the graph's own is meant.
    found = [each for each in offers if each.definition.name not in graph.tools]
    found += [ToolOffer(definition=tool.definition, digest="") for tool in graph.tools.values()]
    if graph.offers_delegate:
        found.append(ToolOffer(definition=delegate_definition(), digest=""))
    if graph.switch_paradigms:
        definition = switch_paradigm_definition(graph.switch_paradigms)
        found.append(ToolOffer(definition=definition, digest=""))
    found = [each for each in found if filter_passes(wanted, each.definition.name)]
    return ToolSet(
        digest=canonical.digest_text("\n".join(map(_line, found))),
        definitions=tuple(each.definition for each in found),
        offered={
            each.definition.name: OfferedTool(
                name=each.definition.name,
                digest=each.digest,
                input_schema=each.definition.input_schema,
                requires_approval=each.requires_approval,
            )
            for each in found
        },
    )


def _line(offer: ToolOffer) -> str:
    """Return what tells an offer apart from others, in the digest of a set."""
    line = f"{offer.definition.name} {offer.digest or canonical.digest(offer.definition)}"
    return f"{line} approval" if offer.requires_approval else line
