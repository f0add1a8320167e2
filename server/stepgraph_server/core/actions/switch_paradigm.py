"""SwitchParadigm: switches the carried paradigm and clears the decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import conversation_pb2, graph_pb2
from stepgraph_server.core.actions.calls import provider_id_of
from stepgraph_server.core.actions.messages import result_message, text_block
from stepgraph_server.core.actions.step import Done, Fail
from stepgraph_server.core.failures import failure

if TYPE_CHECKING:
    from stepgraph_server.core.actions.step import Poll, Step


def poll(poll: Poll) -> Step:
    """Carry the node's paradigm, or the one that the decision asks for, whose call then gets its result."""
    node = poll.activation.node
    action = node.action
    assert isinstance(action, graph_pb2.NodeAction.SwitchParadigm)
    if action.paradigm:
        return Done(paradigm=action.paradigm, decides=True)
    decision = poll.view.carried.decision
    if decision is None or not decision.HasField("switch_paradigm"):
        message = f"{node.id!r} carries out the decision to switch the paradigm, but none was carried to it"
        return Fail(failure=failure("NO_DECISION", message, source=node.id))
    wanted = decision.switch_paradigm
    known = sorted(poll.state.graph.paradigms)
    if wanted.paradigm not in known:
        message = (
            f"there is no paradigm {wanted.paradigm!r}; the graph has {', '.join(known) or 'none'}"
        )
        return Fail(failure=failure("PARADIGM_UNKNOWN", message, source=node.id))
    messages: tuple[conversation_pb2.Message, ...] = ()
    if wanted.call_id:
        said = [text_block(f"switched to {wanted.paradigm}")]
        messages = (result_message(wanted.call_id, provider_id_of(poll, wanted.call_id), said),)
    return Done(paradigm=wanted.paradigm, decides=True, messages=messages)
