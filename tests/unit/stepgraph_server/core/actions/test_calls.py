"""Calls of a carried decision: which are open, and what is left of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import conversation_pb2, state_pb2, transition_pb2
from stepgraph_server.core.actions.calls import open_calls, settled_decision, tool_error
from stepgraph_server.core.state import Carried
from tests.support.core_pieces import compiled, poll_of, state_of, text

if TYPE_CHECKING:
    from stepgraph_server.core.actions.step import Poll

GRAPH = compiled("nodes: [{id: a, run_requested_tools: {}}]")
CALLS = [conversation_pb2.ToolCallBlock(id=name, name="t") for name in ("1", "2")]
CARRIED = Carried(
    decision=state_pb2.GraphDecision(
        tool_calls=state_pb2.GraphDecision.ToolCalls(count=2, calls=CALLS)
    )
)


def asked(*open_ids: str) -> Poll:
    state = state_of(GRAPH)
    blocks = [
        conversation_pb2.ContentBlock(tool_call=call) for call in CALLS if call.id in open_ids
    ]
    message = conversation_pb2.Message(role=conversation_pb2.ROLE_ASSISTANT, content=blocks)
    state.conversation.append(message)
    return poll_of(state, "a", CARRIED)


def test_a_call_is_open_until_it_has_a_result() -> None:
    assert [call.id for call in open_calls(asked("1", "2"))] == ["1", "2"]
    assert [call.id for call in open_calls(asked("2"))] == ["2"]
    assert open_calls(poll_of(state_of(GRAPH), "a")) == []


def test_a_decision_is_handed_on_whole_until_no_call_is_left() -> None:
    poll = asked("1", "2")
    assert settled_decision(poll, performed=["1"]) is CARRIED.decision
    assert settled_decision(poll, performed=["2", "1"]) is None


def test_one_error_speaks_for_itself_and_several_are_causes() -> None:
    shown = transition_pb2.ToolResult(output=text("hidden"), is_error=True)
    shown.content.add().text.text = "shown"
    plain = transition_pb2.ToolResult(output=text("plain"), is_error=True)
    assert tool_error("a", [shown]).message == "shown"
    both = tool_error("a", [shown, plain])
    assert both.message == "all 2 calls failed"
    assert [cause.message for cause in both.causes] == ["shown", "plain"]
