"""WaitSignal: waits for signals; what they carried is its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import graph_pb2, interrupt_pb2, transition_pb2
from stepgraph_server.core.actions.messages import list_value
from stepgraph_server.core.actions.step import MAX_RENDERED_BYTES, Done, Suspend
from stepgraph_server.core.templates import Template

if TYPE_CHECKING:
    from stepgraph_server.core.actions.step import Poll, Step


def poll(poll: Poll) -> Step:
    """Wait, then end with the payload, or with the list of them if several were wanted."""
    action = poll.activation.node.action
    assert isinstance(action, graph_pb2.NodeAction.WaitSignal)
    if poll.turn > 0:
        answer = poll.activation.results[0]
        assert isinstance(answer, interrupt_pb2.InterruptAnswer)
        payloads = list(answer.signals.payloads)
        return Done(value=list_value(payloads) if action.count > 1 else payloads[0])
    correlation = action.correlation
    if "{{" in correlation:
        correlation = Template.compile(correlation).render(poll.view, max_bytes=MAX_RENDERED_BYTES)
    wanted = transition_pb2.Transition.Suspend()
    wanted.reason.signal.name = action.name
    wanted.reason.signal.correlation = correlation
    wanted.reason.signal.count = action.count
    if action.HasField("timeout"):
        wanted.timeout.CopyFrom(action.timeout)
    return Suspend(wanted=wanted)
