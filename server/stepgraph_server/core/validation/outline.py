"""What several checks need to know of a definition that may be wrong anywhere.

Rules: an outline is built without judging. Where ids repeat, the first node counts; edges with an unknown end are left out
of what leads where. Nodes are numbered in the order of the definition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepgraph_server.core import names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepgraph.v1.graph_pb2 import StateGraph
    from stepgraph_server.core.expressions import Expression
    from stepgraph_server.core.policies import GraphDefaults


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outline:
    """A definition with what was looked up in it.

    Attributes:
        definition: The definition.
        defaults: What the server adds where it says nothing.
        path: Where it stands, with a dot at the end; empty for the outermost one.
        index: The number of each node, by id.
        terminal: Whether each node is a terminal one.
        edge_ids: The ids of all edges, given or made.
        leaving: The numbers of the edges that leave each node and have known ends.
        successors: The nodes that each node leads to, handoffs included. A terminal node leads nowhere: there the run ends.
        expressions: What was compiled so far, by source. The cache of the compiler is smaller than a graph may be.
    """

    definition: StateGraph
    defaults: GraphDefaults
    path: str
    index: Mapping[str, int]
    terminal: Sequence[bool]
    edge_ids: Sequence[str]
    leaving: Sequence[Sequence[int]]
    successors: Sequence[Sequence[int]]
    expressions: dict[str, Expression] = field(default_factory=dict)

    def node_path(self, number: int) -> str:
        """Return the path of a node."""
        return f"{self.path}nodes[{number}]"

    def edge_path(self, number: int) -> str:
        """Return the path of an edge."""
        return f"{self.path}edges[{number}]"

    def target_of(self, edge: int) -> int:
        """Return the node that an edge of `leaving` enters."""
        return self.index[self.definition.edges[edge].target]


def outline(definition: StateGraph, defaults: GraphDefaults, path: str) -> Outline:
    """Look up what the checks need."""
    index: dict[str, int] = {}
    for number, node in enumerate(definition.nodes):
        index.setdefault(node.id, number)
    ends = set(definition.terminal_nodes)
    terminal = [node.id in ends for node in definition.nodes]
    leaving: list[list[int]] = [[] for _ in definition.nodes]
    successors: list[list[int]] = [[] for _ in definition.nodes]
    for number, edge in enumerate(definition.edges):
        source, target = index.get(edge.source), index.get(edge.target)
        if source is None or target is None:
            continue
        leaving[source].append(number)
        if not terminal[source]:
            successors[source].append(target)
    return Outline(
        definition=definition,
        defaults=defaults,
        path=path,
        index=index,
        terminal=terminal,
        edge_ids=names.edge_ids(definition),
        leaving=leaving,
        successors=successors,
    )
