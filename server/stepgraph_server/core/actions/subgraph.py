"""Subgraph: runs a graph as a child run, with what is mapped to it, and takes what is mapped from it.

Rules: nothing else of the state passes, either way. What the child is started with follows from the node's view, so it is the same
after a restart, whether the child was created before or not.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from stepgraph.v1 import failure_pb2, graph_pb2, run_pb2
from stepgraph_server.core.actions.messages import output_message
from stepgraph_server.core.actions.step import MAX_RENDERED_BYTES, Await, Child, Done, Fail
from stepgraph_server.core.instants import from_duration
from stepgraph_server.core.names import wanted_of
from stepgraph_server.core.templates import ArgsTemplate, Template
from stepgraph_server.core.values import from_json

if TYPE_CHECKING:
    from stepgraph.v1 import value_pb2
    from stepgraph_server.core.actions.step import Poll, Step
    from stepgraph_server.core.state import RunState
    from stepgraph_server.core.view import View


def poll(poll: Poll) -> Step:
    """Run the graph, then end with its output."""
    node = poll.activation.node
    action = node.action
    assert isinstance(action, graph_pb2.NodeAction.Subgraph)
    if poll.turn == 0:
        return Await(effects=(_child(poll, action),))
    result = poll.results[0]
    if isinstance(result, failure_pb2.Failure):
        return Fail(failure=result)
    given = result.graph
    writes: list[tuple[str, value_pb2.Value | None]] = []
    for variable in sorted(action.output):
        # What is not among them may be unset: otherwise the task would have failed.
        name, _ = wanted_of(action.output[variable])
        writes.append((variable, given.variables.get(name)))
    if not given.HasField("output"):
        return Done(writes=tuple(writes))
    message = output_message(given.output, node.id)
    return Done(value=given.output, messages=(message,), writes=tuple(writes))


def _child(poll: Poll, action: graph_pb2.NodeAction.Subgraph) -> Child:
    given = run_pb2.RunInput()
    for variable in sorted(action.input):
        given.variables[variable].CopyFrom(_mapped(poll.view, action.input[variable]))
    return Child(
        label=child_label(poll.state, action.graph),
        graph=action.graph,
        input=given,
        time_limit=from_duration(action.time_limit) if action.HasField("time_limit") else None,
        max_iterations=action.max_iterations,
    )


def _mapped(view: View, text: str) -> value_pb2.Value:
    """Return what a template gives to a child's variable: the value itself if it is nothing but a placeholder, else text."""
    name = Template.compile(text).lone_name()
    if name:
        value = view.carried.last_result if name == "last_result" else view.variable(name)
        if value is not None:
            return value
    # As JSON, a lone placeholder with a path gives what it finds there; anything else is text either way.
    rendered = ArgsTemplate.compile(json.dumps(text)).render(view, max_bytes=MAX_RENDERED_BYTES)
    return from_json(rendered)


def child_label(state: RunState, graph: graph_pb2.GraphRef) -> str:
    """Return what a child run is, for people: what its graph is called."""
    match graph.WhichOneof("kind"):
        case "reference":
            return f"graph {graph.reference}"
        case "definition":
            return f"graph {graph.definition.name or '(inline)'}"
        case _:
            return f"graph {state.graph.name or '(the same)'}"


__all__ = ["child_label", "poll"]
