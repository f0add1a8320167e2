"""Calls that a node of the graph answers itself: its input is the call's arguments, its result stands under that call.

Rules: which call a node answers is settled when it is entered: of the carried decision the first call of its tool that has no result. Entered
without one it is a node like any other. It ends as its action does, except that what it would say to the conversation is the result of
the call, and that the decision is handed on only while other calls wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import transition_pb2, value_pb2
from stepgraph_server.core import spawning
from stepgraph_server.core.actions.calls import settled_decision, tool_error
from stepgraph_server.core.actions.messages import tool_message
from stepgraph_server.core.actions.step import Done
from stepgraph_server.core.conversation import message_text
from stepgraph_server.core.decisions import judge_call
from stepgraph_server.core.preparing import poll_of
from stepgraph_server.core.state import Delta

if TYPE_CHECKING:
    from stepgraph_server.core.state import Activation, RunState


def begin(state: RunState, activation: Activation) -> None:
    """Settle which call a node answers that is entered."""
    decision = activation.carried.decision
    if decision is None:
        return
    for call in decision.tool_calls.calls:
        if call.name == activation.node.answers and state.conversation.is_open(call.id):
            activation.call = call
            activation.given = value_pb2.Value(json=call.args or "{}")
            # Seen by what the node renders and evaluates; nothing is written.
            activation.delta = Delta([], {"input": activation.given}, [])
            return


def refusal(state: RunState, activation: Activation) -> Done | None:
    """Return how a node ends whose call makes no sense: the model is told, and nothing is done. None: it may act."""
    call = activation.call
    if call is None:
        return None
    tools = state.tool_sets.get(activation.entered_with.tools_digest)
    problem = judge_call(call, tools.offered if tools is not None else {})
    if problem is None:
        return None
    output = value_pb2.Value(text=problem)
    reported = transition_pb2.ToolResult(output=output, is_error=True)
    return Done(value=output, error=tool_error(activation.node.id, [reported]))


def under_call(state: RunState, activation: Activation, done: Done) -> Done:
    """Return what an action ended with, as the end of a node that answers a call."""
    call = activation.call
    if call is None or done.notes:
        return done
    poll = poll_of(state, activation, 0, None)
    result = transition_pb2.ToolResult(
        output=_output(activation, done), is_error=done.error is not None
    )
    return Done(
        value=done.value,
        messages=(tool_message(call.id, call.provider_id, result),),
        writes=done.writes,
        decision=settled_decision(poll, performed=[call.id]),
        decides=True,
        paradigm=done.paradigm,
        error=done.error,
        target=done.target,
        handed=done.handed,
    )


def _output(activation: Activation, done: Done) -> value_pb2.Value:
    """Return what the model reads: the node's result, else what it would have said, else that it was done."""
    if done.value is not None:
        return done.value
    if activation.node.action_kind == "human_approval":
        return spawning.answered(activation)
    said = "".join(message_text(message) for message in done.messages)
    return value_pb2.Value(text=said or "Done.")


__all__ = ["begin", "refusal", "under_call"]
