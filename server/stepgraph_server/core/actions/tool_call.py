"""ToolCall: calls one tool, on the graph's own account or for the carried decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import conversation_pb2, failure_pb2, graph_pb2, interrupt_pb2
from stepgraph_server.core import json_text
from stepgraph_server.core.actions.calls import (
    call_question,
    open_calls,
    provider_id_of,
    settled_decision,
    tool_error,
)
from stepgraph_server.core.actions.inputs import tool_input
from stepgraph_server.core.actions.messages import (
    output_message,
    refused_call,
    tool_message,
)
from stepgraph_server.core.actions.step import (
    MAX_RENDERED_BYTES,
    Answered,
    Await,
    Done,
    Effect,
    Fail,
)
from stepgraph_server.core.decisions import judge_call
from stepgraph_server.core.failures import failure
from stepgraph_server.core.requirements import both_selectors
from stepgraph_server.core.templates import ArgsTemplate, Template

if TYPE_CHECKING:
    from stepgraph_server.core.actions.step import Poll, Step


def poll(poll: Poll) -> Step:
    """Ask for the tool, then end with what it gave."""
    if poll.turn == 0:
        call = _call(poll)
        return call if isinstance(call, Fail) else _await(poll, call)
    result = poll.results[0]
    if isinstance(result, failure_pb2.Failure):
        return Fail(failure=result)
    node = poll.activation.node
    tool = result.tool
    error = tool_error(node.id, [tool]) if tool.is_error else None
    call_id = poll.activation.call_ids[0]
    if not call_id:
        return Done(
            value=tool.output, messages=(output_message(tool.output, node.id),), error=error
        )
    message = tool_message(call_id, provider_id_of(poll, call_id), tool)
    return Done(
        value=tool.output,
        messages=(message,),
        error=error,
        decision=settled_decision(poll, performed=[call_id]),
        decides=True,
    )


def _await(poll: Poll, call: conversation_pb2.ToolCallBlock) -> Step:
    digest = ""
    if call.id:
        tools = poll.state.tool_sets.get(poll.view.carried.tools_digest)
        offered = tools.offered if tools is not None else {}
        problem = judge_call(call, offered)
        if problem is not None:
            answer = Answered(
                label=f"tool {call.name}", call_id=call.id, result=refused_call(problem)
            )
            return Await(effects=(answer,))
        digest = offered[call.name].digest
    effect = Effect(
        key=("tool", call.name, digest),
        label=f"tool {call.name}",
        prepared=tool_input(call.name, call.args, call.id),
        call_id=call.id,
    )
    return Await(effects=(effect,))


def _call(poll: Poll) -> conversation_pb2.ToolCallBlock | Fail:
    """Return the call to make, with the arguments that a person may have put in place of the graph's."""
    node = poll.activation.node
    action = node.action
    assert isinstance(action, graph_pb2.NodeAction.ToolCall)
    name = Template.compile(action.tool_name).render(poll.view, max_bytes=MAX_RENDERED_BYTES)
    if action.HasField("args_template"):
        args = json_text.dump(
            ArgsTemplate.compile(action.args_template).render(
                poll.view, max_bytes=MAX_RENDERED_BYTES
            )
        )
        call = conversation_pb2.ToolCallBlock(name=name, args=args)
    else:
        wanted = [call for call in open_calls(poll) if call.name == name]
        if len(wanted) > 1:
            message = f"the decision asks for {name!r} {len(wanted)} times; use RunRequestedTools"
            return Fail(failure=failure("TOOL_CALL_AMBIGUOUS", message, source=node.id))
        call = wanted[0] if wanted else conversation_pb2.ToolCallBlock(name=name, args="{}")
    answer = poll.activation.answer
    if answer is None or not answer.proceed_with.HasField("tool_args"):
        return call
    return conversation_pb2.ToolCallBlock(id=call.id, name=name, args=answer.proceed_with.tool_args)


def question(poll: Poll) -> interrupt_pb2.ToolQuestion | Fail:
    """Return the call as a person is asked about it."""
    call = _call(poll)
    if isinstance(call, Fail):
        return call
    asked = call_question(call.name, call.args, call_id=call.id)
    asked.input_schema = _input_schema(poll, call)
    return asked


def _input_schema(poll: Poll, call: conversation_pb2.ToolCallBlock) -> str:
    """Return what other arguments must satisfy: what the model was told, else what is on offer now."""
    if call.id:
        tools = poll.state.tool_sets.get(poll.view.carried.tools_digest)
        offered = tools.offered.get(call.name) if tools is not None else None
        return offered.input_schema if offered is not None else ""
    assert poll.world is not None, "a question is never asked by a fold"
    offers = poll.world.tools(both_selectors(poll.state.selector, poll.activation.node.selector))
    schemas = (each.definition.input_schema for each in offers if each.definition.name == call.name)
    return next(schemas, "")
