"""Assign: writes to the state, without an executor. Empty, it only passes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import graph_pb2
from stepgraph_server.core.actions.messages import template_message
from stepgraph_server.core.actions.step import Done
from stepgraph_server.core.values import from_json

if TYPE_CHECKING:
    from stepgraph.v1 import value_pb2
    from stepgraph_server.core.actions.step import Poll, Step


def poll(poll: Poll) -> Step:
    """Evaluate all expressions against the state before the node, then write; the carried part is handed on untouched."""
    node = poll.activation.node
    action = node.action
    assert isinstance(action, graph_pb2.NodeAction.Assign)
    view = poll.view
    writes: list[tuple[str, value_pb2.Value | None]] = [
        (name, from_json(view.evaluate(expression)))
        for name, expression in node.expressions.items()
    ]
    writes += [(name, None) for name in action.unset]
    if not action.message_template:
        return Done(writes=tuple(writes))
    message = template_message(view, action.message_template, node.id)
    return Done(writes=tuple(writes), messages=(message,))
