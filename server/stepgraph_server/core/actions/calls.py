"""The calls that a carried decision asks for: which are open, and what is left of the decision once some are performed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import interrupt_pb2
from stepgraph_server.core import canonical
from stepgraph_server.core.actions.messages import value_blocks
from stepgraph_server.core.failures import failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph.v1 import conversation_pb2, failure_pb2, state_pb2, transition_pb2
    from stepgraph_server.core.actions.step import Poll


def open_calls(poll: Poll) -> list[conversation_pb2.ToolCallBlock]:
    """Return the calls of the carried decision that have no result yet, in the model's order."""
    decision = poll.view.carried.decision
    if decision is None or not decision.HasField("tool_calls"):
        return []
    conversation = poll.state.conversation
    return [call for call in decision.tool_calls.calls if conversation.is_open(call.id)]


def provider_id_of(poll: Poll, call_id: str) -> str:
    """Return what the model's provider calls a call; empty if it gave it no id."""
    call = poll.state.conversation.open_call(call_id)
    return "" if call is None else call.provider_id


def settled_decision(poll: Poll, *, performed: Sequence[str]) -> state_pb2.GraphDecision | None:
    """Return what is carried on: nothing once every call has its result, else the decision as a whole."""
    decision = poll.view.carried.decision
    if decision is None or len(performed) == len(decision.tool_calls.calls):
        return None
    return None if all(call.id in performed for call in open_calls(poll)) else decision


def call_question(name: str, args: str, *, call_id: str = "") -> interrupt_pb2.ToolQuestion:
    """Return a call as a person is asked about it. What was approved is what runs, by its digest."""
    args = args or "{}"
    digest = canonical.digest_text(f"{name}\n{args}")
    return interrupt_pb2.ToolQuestion(tool_name=name, args=args, digest=digest, call_id=call_id)


def tool_error(node_id: str, results: Sequence[transition_pb2.ToolResult]) -> failure_pb2.Failure:
    """Return the error that a node carries on whose tools all reported trouble; causes are in call order."""
    texts = [_text(result) for result in results]
    causes = (
        [failure("TOOL_ERROR", text, source=node_id) for text in texts] if len(texts) > 1 else []
    )
    return failure(
        "TOOL_ERROR",
        texts[0] if len(texts) == 1 else f"all {len(texts)} calls failed",
        source=node_id,
        causes=causes,
    )


def _text(result: transition_pb2.ToolResult) -> str:
    blocks = result.content or value_blocks(result.output)
    return "".join(block.text.text for block in blocks if block.HasField("text"))
