"""ConditionCheck: evaluates a condition and stores what it gave as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import value_pb2
from stepgraph_server.core.actions.step import Done
from stepgraph_server.core.routing import condition_holds

if TYPE_CHECKING:
    from stepgraph_server.core.actions.step import Poll, Step

RESULT = "_condition_result"


def poll(poll: Poll) -> Step:
    """Write "true" or "false"; the carried part is handed on untouched."""
    node = poll.activation.node
    check = node.check
    assert check is not None, node.id
    holds = condition_holds(check.kind, check.condition, check.expression, poll.view)
    value = value_pb2.Value(text="true" if holds else "false")
    return Done(writes=((RESULT, value), (f"{RESULT}.{node.id}", value)))
