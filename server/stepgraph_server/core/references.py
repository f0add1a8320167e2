"""References of graphs to other graphs: of nodes that run one, and of tools that one performs.

Rules: read from a definition alone; what a reference stands for, the engine finds out when a root starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepgraph.v1 import graph_pb2


class Reference(NamedTuple):
    """Where a graph names another one, and what it calls it."""

    path: str
    reference: str


def references_of(definition: graph_pb2.StateGraph, path: str = "") -> Iterator[Reference]:
    """Yield the references of a definition to other graphs, of all that is inside it. That they end, the depth of messages sees to."""
    named = [
        (f"{path}nodes[{number}].action.subgraph.graph", node.action.subgraph.graph)
        for number, node in enumerate(definition.nodes)
        if node.action.HasField("subgraph")
    ]
    named += [
        (f"{path}tools[{number}].graph", tool.graph) for number, tool in enumerate(definition.tools)
    ]
    for where, graph in named:
        if graph.HasField("reference"):
            yield Reference(f"{where}.reference", graph.reference)
        elif graph.HasField("definition"):
            yield from references_of(graph.definition, f"{where}.definition.")


__all__ = ["Reference", "references_of"]
