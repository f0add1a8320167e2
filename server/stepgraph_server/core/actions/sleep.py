"""Sleep: waits, for a time or until one; no executor takes part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import graph_pb2
from stepgraph_server.core.actions.step import Await, Done, Pause
from stepgraph_server.core.instants import from_duration, from_timestamp, seconds_text

if TYPE_CHECKING:
    from stepgraph_server.core.actions.step import Poll, Step


def poll(poll: Poll) -> Step:
    """Sleep, then hand the carried part on."""
    if poll.turn > 0:
        return Done()
    action = poll.activation.node.action
    assert isinstance(action, graph_pb2.NodeAction.Sleep)
    if action.WhichOneof("kind") == "until":
        label = f"sleep until {action.until.ToJsonString()}"
        return Await(effects=(Pause(label=label, until=from_timestamp(action.until)),))
    span = from_duration(action.duration)
    return Await(effects=(Pause(label=f"sleep {seconds_text(span)}", span=span),))
