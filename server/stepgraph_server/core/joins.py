"""Which nodes run next: targets of followed edges, and ALL-joins that are complete.

Rules: reachability is static, computed once per graph over all edges. A join that was reached waits outside the frontier
while any other live node can still reach it; joins that wait are live themselves. Nothing here emits or changes a state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2
from stepgraph_server.core.failures import failure
from stepgraph_server.core.state import Carried, Plan, carry

if TYPE_CHECKING:
    from stepgraph.v1 import failure_pb2, value_pb2
    from stepgraph_server.core.graph import CompiledNode
    from stepgraph_server.core.state import Activation, RunState

_FOLLOWED = event_pb2.EDGE_VERDICT_FOLLOWED


def plan_next(state: RunState) -> Plan:
    """Return what runs after the activations of the current superstep, which have all ended. Raises GotoConflict."""
    if not state.activations:
        return _plan(state, {state.graph.entry.id: state.carried}, {})
    lone = _lone_step(state)
    if lone is not None:
        return lone
    reached: dict[str, list[tuple[str, Carried]]] = {}
    for activation in state.activations.values():
        for target, carried in _followed(state, activation):
            reached.setdefault(target, []).append((activation.node.id, carried))
    arrivals = {join: dict(by_source) for join, by_source in state.arrivals.items()}
    targets: dict[str, Carried] = {}
    for target, entries in reached.items():
        if state.graph.nodes[target].join_all:
            arrivals.setdefault(target, {}).update(entries)
        else:
            targets[target] = bring_together(target, entries)
    return _plan(state, targets, arrivals)


def _lone_step(state: RunState) -> Plan | None:
    """Return what runs next if one node leads to one other and no join waits: the common path, told without lists of one."""
    if len(state.activations) != 1 or state.arrivals:
        return None
    (activation,) = state.activations.values()
    followed = ""
    for edge_id, verdict in activation.edges:
        if verdict == _FOLLOWED:
            if followed:
                return None
            followed = edge_id
    if not followed:
        return None
    graph = state.graph
    target = graph.nodes[graph.edges_by_id[followed].target]
    if target.join_all:
        return None
    possible = target.bit if target.terminal else target.bit | target.reach
    return Plan(((target, activation.carried),), {}, (), possible)


def _followed(state: RunState, activation: Activation) -> list[tuple[str, Carried]]:
    edges = state.graph.edges_by_id
    return [
        (edges[edge.edge_id].target, activation.carried)
        for edge in activation.edges
        if edge.verdict == _FOLLOWED
    ]


class GotoConflict(Exception):  # named for what happened; it never leaves the end of a superstep
    """Several Gotos bring different things to one node; `failure` says which."""

    def __init__(self, why: failure_pb2.Failure) -> None:
        super().__init__(why.message)
        self.failure = why


def bring_together(target: str, entries: list[tuple[str, Carried]]) -> Carried:
    """Return what a node is entered with that several edges reach; `entries` are in node-id order of their sources.

    Raises GotoConflict: two of them are Gotos that carry different things.
    """
    last = entries[-1][1]
    if len(entries) == 1:
        return last
    error = next((entry.last_error for _, entry in entries if entry.last_error is not None), None)
    return carry(last, last_error=error, handed=_handed(target, entries))


def _handed(target: str, entries: list[tuple[str, Carried]]) -> value_pb2.Value | None:
    first = ""
    handed: value_pb2.Value | None = None
    for source, entry in entries:
        if entry.handed is None:
            continue
        if handed is None:
            first, handed = source, entry.handed
        elif handed != entry.handed:
            message = (
                f"{first!r} and {source!r} both go to {target!r} and carry different things; a node has one input. Let one "
                "of them go there, or carry the same"
            )
            details = {"target": target, "nodes": f"{first},{source}"}
            raise GotoConflict(failure("GOTO_CONFLICT", message, source=target, details=details))
    return handed


def _plan(
    state: RunState, targets: dict[str, Carried], arrivals: dict[str, dict[str, Carried]]
) -> Plan:
    nodes = state.graph.nodes
    entered = dict(targets)
    for join in _released(state, targets, arrivals):
        by_source = arrivals.pop(join)
        entered[join] = bring_together(
            join, [(source, by_source[source]) for source in sorted(by_source, key=_bytes)]
        )
    frontier = tuple(
        sorted(((nodes[node_id], carried) for node_id, carried in entered.items()), key=_by_index)
    )
    displaced: tuple[CompiledNode, ...] = ()
    terminal = next((entry for entry in frontier if entry[0].terminal), None)
    if terminal is not None:
        others = [node for node, _ in frontier if node is not terminal[0]]
        displaced = tuple(
            sorted([*others, *(nodes[join] for join in arrivals)], key=lambda node: node.index)
        )
        frontier, arrivals = (terminal,), {}
        return Plan(
            frontier=frontier, arrivals=arrivals, displaced=displaced, possible=terminal[0].bit
        )
    possible = 0
    for node, _ in frontier:
        possible |= node.bit | node.reach
    for join in arrivals:
        possible |= nodes[join].bit | nodes[join].reach
    return Plan(frontier=frontier, arrivals=arrivals, displaced=displaced, possible=possible)


def _released(
    state: RunState, targets: dict[str, Carried], arrivals: dict[str, dict[str, Carried]]
) -> list[str]:
    """Return the joins that nothing live can reach any more; if all wait on each other, the first in node-id order."""
    if not arrivals:
        return []
    nodes = state.graph.nodes
    live = [nodes[name] for name in (*targets, *arrivals)]
    released = [
        join
        for join in arrivals
        if not any(node.reach & nodes[join].bit for node in live if node.id != join)
    ]
    if not released and not targets:
        released = [min(arrivals, key=_bytes)]
    return released


def _bytes(name: str) -> bytes:
    return name.encode()


def _by_index(entry: tuple[CompiledNode, Carried]) -> int:
    return entry[0].index
