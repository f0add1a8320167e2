"""RunRequestedTools: performs the calls that the carried decision asked for and that have no result yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import failure_pb2, graph_pb2, run_pb2, transition_pb2, value_pb2
from stepgraph_server.core.actions.calls import (
    open_calls,
    provider_id_of,
    settled_decision,
    tool_error,
)
from stepgraph_server.core.actions.inputs import tool_input
from stepgraph_server.core.actions.messages import (
    failure_text,
    list_value,
    refused_call,
    tool_message,
)
from stepgraph_server.core.actions.step import Answered, Await, Child, Done, Effect
from stepgraph_server.core.decisions import filter_passes, judge_call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepgraph.v1 import conversation_pb2
    from stepgraph_server.core.actions.step import Poll, Result, Step
    from stepgraph_server.core.decisions import OfferedTool


def poll(poll: Poll) -> Step:
    """Ask for all calls at once, then write each result under its call. No call is no work."""
    if poll.turn > 0:
        return _finish(poll)
    action = poll.activation.node.action
    assert isinstance(action, graph_pb2.NodeAction.RunRequestedTools)
    calls = open_calls(poll)
    if action.HasField("filter"):
        calls = [call for call in calls if filter_passes(action.filter, call.name)]
    # Those that a node of the graph answers are left to it.
    tools = poll.state.graph.tools
    calls = [call for call in calls if call.name not in tools or tools[call.name].HasField("graph")]
    if not calls:
        return Done(decision=settled_decision(poll, performed=[]), decides=True)
    shown = poll.state.tool_sets.get(poll.view.carried.tools_digest)
    offered = shown.offered if shown is not None else {}
    most = action.max_calls or len(calls)
    effects = [_effect(call, offered, tools) for call in calls[:most]]
    effects += [_beyond(call, most) for call in calls[most:]]
    return Await(tuple(effects), action.max_concurrency)


def _effect(
    call: conversation_pb2.ToolCallBlock,
    offered: dict[str, OfferedTool],
    tools: Mapping[str, graph_pb2.GraphTool],
) -> Effect | Child | Answered:
    # Judged against the tools that the model was offered, not against those of now: the model can't know these.
    problem = judge_call(call, offered)
    if problem is not None:
        return Answered(label=f"tool {call.name}", call_id=call.id, result=refused_call(problem))
    performer = tools.get(call.name)
    if performer is not None:
        return _child(performer, call)
    return Effect(
        key=("tool", call.name, offered[call.name].digest),
        label=f"tool {call.name}",
        prepared=tool_input(call.name, call.args, call.id),
        call_id=call.id,
    )


def _child(tool: graph_pb2.GraphTool, call: conversation_pb2.ToolCallBlock) -> Child:
    """Return the run of the graph that performs a tool: the arguments are its input, its output is the result."""
    given = run_pb2.RunInput(value=value_pb2.Value(json=call.args or "{}"))
    return Child(label=f"tool {call.name}", graph=tool.graph, input=given, call_id=call.id)


def _beyond(call: conversation_pb2.ToolCallBlock, most: int) -> Answered:
    calls = "call is" if most == 1 else "calls are"
    problem = f"Not performed: of one reply at most {most} such {calls}. Ask again for what is still needed."
    return Answered(label=f"tool {call.name}", call_id=call.id, result=refused_call(problem))


def _finish(poll: Poll) -> Step:
    call_ids = poll.activation.call_ids
    results: list[transition_pb2.ToolResult] = []
    messages: list[conversation_pb2.Message] = []
    # One failed call among others is for the model to deal with; only if nothing worked is it an error of the node.
    all_failed = True
    for call_id, reported in zip(call_ids, poll.results, strict=True):
        result = _tool_result(reported)
        all_failed = all_failed and result.is_error
        results.append(result)
        messages.append(tool_message(call_id, provider_id_of(poll, call_id), result))
    value = (
        results[0].output
        if len(results) == 1
        else list_value([result.output for result in results])
    )
    return Done(
        value=value,
        messages=tuple(messages),
        error=tool_error(poll.activation.node.id, results) if all_failed else None,
        decision=settled_decision(poll, performed=call_ids),
        decides=True,
    )


def _tool_result(result: Result) -> transition_pb2.ToolResult:
    if isinstance(result, failure_pb2.Failure):
        output = value_pb2.Value(text=failure_text(result))
        return transition_pb2.ToolResult(output=output, is_error=True)
    if result.HasField("graph"):
        return transition_pb2.ToolResult(output=result.graph.output)
    return result.tool
