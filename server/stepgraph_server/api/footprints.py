"""Where a run has been, for a drawing: counted from its events."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2
from stepgraph_server.core.render import WalkedPath

if TYPE_CHECKING:
    from collections.abc import Iterable


class Footprints:
    """Takes the events of a run in order."""

    def __init__(self) -> None:
        self._nodes: Counter[str] = Counter()
        self._edges: Counter[str] = Counter()
        self._current: set[str] = set()

    def add(self, event: event_pb2.RunEvent) -> None:
        """Take the next event. Kinds that say nothing of the way, or that are not known, are passed over."""
        match event.WhichOneof("kind"):
            case "superstep_started":
                self._nodes.update(event.superstep_started.nodes)
                self._current = set(event.superstep_started.nodes)
            case "node_completed":
                self._leave(event.node_completed.activation_id, event.node_completed.node_id)
                self._follow(event.node_completed.edges)
            case "node_failed":
                self._leave(event.node_failed.activation_id, event.node_failed.node_id)
                self._follow(event.node_failed.edges)
            case "node_cancelled":
                self._leave(event.node_cancelled.activation_id, event.node_cancelled.node_id)
            case "edges_evaluated":
                self._follow(event.edges_evaluated.edges)
            case "run_completed" | "run_failed" | "run_cancelled":
                self._current = set()
            case _:
                pass

    def path(self) -> WalkedPath:
        """Return where the run has been so far."""
        return WalkedPath(
            node_counts=dict(self._nodes),
            edge_counts=dict(self._edges),
            current=frozenset(self._current),
        )

    def _leave(self, activation_id: str, node_id: str) -> None:
        # `<superstep>/<node>` is the node's own; a longer id is work that another node spawned.
        if activation_id.count("/") == 1:
            self._current.discard(node_id)

    def _follow(self, edges: Iterable[event_pb2.EdgeOutcome]) -> None:
        for edge in edges:
            if edge.verdict == event_pb2.EDGE_VERDICT_FOLLOWED:
                self._edges[edge.edge_id] += 1
