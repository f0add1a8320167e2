"""How nodes and edges hang together: what can be reached, what ends, and which edges contradict each other.

Rules: only what no run can ever mend is a problem. That a loop never ends is a warning: every run has a cap, and a step
program may end it. A way that leads nowhere is reported once, where it stops, not at each node before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import graph_pb2
from stepgraph_server.core.topology import components, members, reachable_from, reversed_graph
from stepgraph_server.core.validation.actions import BODY_ACTIONS
from stepgraph_server.core.validation.codes import ProblemCode, WarningCode
from stepgraph_server.core.validation.report import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph.v1.graph_pb2 import GraphEdge
    from stepgraph_server.core.validation.outline import Outline
    from stepgraph_server.core.validation.report import Report


def condition_key(edge: GraphEdge) -> bytes:
    """Return what is equal for edges with the same condition; empty for an unconditional one."""
    if not edge.HasField("condition") or edge.condition.HasField("always"):
        return b""
    return edge.condition.SerializeToString(deterministic=True)


def is_unconditional(edge: GraphEdge) -> bool:
    """Whether an edge holds whatever its node gave, while it is not spent."""
    return not edge.handoff and condition_key(edge) == b""


def check_flow(report: Report, outline: Outline) -> None:
    """Check reachability, ends, joins, and the edges of each node together."""
    parts = components(outline.successors)
    _check_reachable(report, outline)
    _check_stops(report, outline, parts)
    _check_joins(report, outline, parts)
    for number, leaving in enumerate(outline.leaving):
        if outline.terminal[number]:
            _check_edges_of_end(report, outline, leaving)
        elif len(leaving) > 1:
            _check_together(report, outline, leaving)


# ---- reachability ------------------------------------------------------------------------------


def _check_reachable(report: Report, outline: Outline) -> None:
    entry = outline.index.get(outline.definition.entry_point)
    if entry is None:
        return  # nothing could be reached, which is said once, at entry_point
    reached = set(members(reachable_from(outline.successors, [entry])))
    nodes = outline.definition.nodes
    bodies = {
        outline.index.get(nodes[number].action.map.body.node_id)
        for number in reached
        if nodes[number].action.HasField("map")
    }
    spawns = any(nodes[number].action.HasField("step") for number in reached)
    alone = _without_edges(outline)
    for number, node in enumerate(nodes):
        if number in reached or number in bodies or outline.index[node.id] != number:
            continue
        kind = node.action.WhichOneof("kind")
        if spawns and number in alone and kind in BODY_ACTIONS:
            report.warning(
                WarningCode.SPAWNED_ONLY,
                outline.node_path(number),
                f"no edge leads to {shown(node.id)}, so it only runs if a step program spawns it",
                "If an edge is missing, add it.",
            )
            continue
        report.problem(
            ProblemCode.UNREACHABLE_NODE,
            outline.node_path(number),
            f"no way leads from {shown(outline.definition.entry_point)} to {shown(node.id)}",
            "Add an edge that leads to it, or remove it.",
        )


def _without_edges(outline: Outline) -> set[int]:
    entered = {outline.target_of(edge) for leaving in outline.leaving for edge in leaving}
    return {
        number
        for number, leaving in enumerate(outline.leaving)
        if not leaving and number not in entered
    }


def _check_stops(report: Report, outline: Outline, parts: Sequence[Sequence[int]]) -> None:
    """Warn of nodes and loops that lead nowhere else and are not the end."""
    has_ends = any(outline.terminal)
    alone = _without_edges(outline)
    for part in parts:
        inside = set(part)
        if any(target not in inside for node in part for target in outline.successors[node]):
            continue
        first = min(part)
        name = shown(outline.definition.nodes[first].id)
        if outline.terminal[first]:
            continue
        if outline.successors[first]:
            report.warning(
                WarningCode.LOOP_WITHOUT_EXIT,
                outline.node_path(first),
                f"nothing leads out of the loop of {len(part)} node(s) at {name}",
                "Add an edge out of it, such as one with IterationExceeds, or a terminal node.",
            )
        elif has_ends and first not in alone:
            report.warning(
                WarningCode.NO_WAY_TO_END,
                outline.node_path(first),
                f"nothing leads on from {name}, and it is not a terminal node",
                "List it under terminal_nodes, or add an edge.",
            )


def _check_joins(report: Report, outline: Outline, parts: Sequence[Sequence[int]]) -> None:
    predecessors = reversed_graph(outline.successors)
    cyclic = {
        node for part in parts for node in part if len(part) > 1 or node in outline.successors[node]
    }
    for number, node in enumerate(outline.definition.nodes):
        if node.join != graph_pb2.NODE_JOIN_ALL:
            continue
        path = f"{outline.node_path(number)}.join"
        sources = len(set(predecessors[number]))
        if sources < 2:  # "several" begins here
            report.warning(
                WarningCode.JOIN_ONE_SOURCE,
                path,
                f"{shown(node.id)} joins ALL branches, but {sources} node(s) lead to it",
                "Use ANY, or add the missing edge.",
            )
        if number in cyclic:
            report.warning(
                WarningCode.JOIN_ON_CYCLE,
                path,
                f"{shown(node.id)} joins ALL branches and stands on a cycle",
                "Each round arms it again; use ANY unless that is meant.",
            )


# ---- the edges of one node ---------------------------------------------------------------------


def _check_edges_of_end(report: Report, outline: Outline, leaving: Sequence[int]) -> None:
    for number in leaving:
        source = outline.definition.edges[number].source
        report.warning(
            WarningCode.EDGE_NEVER_FOLLOWED,
            outline.edge_path(number),
            f"{shown(source)} is a terminal node: with it the run is over",
            "Remove the edge, or take the node out of terminal_nodes.",
        )


def _check_together(report: Report, outline: Outline, leaving: Sequence[int]) -> None:
    edges = outline.definition.edges
    _check_duplicates(report, outline, leaving)
    plain = [number for number in leaving if not edges[number].handoff]
    otherwise = [number for number in plain if edges[number].condition.HasField("otherwise")]
    always = [number for number in plain if is_unconditional(edges[number])]
    uncapped = [number for number in always if edges[number].max_traversals == 0]
    for number in otherwise:
        if uncapped:
            report.problem(
                ProblemCode.OTHERWISE_NEVER_HOLDS,
                f"{outline.edge_path(number)}.condition.otherwise",
                f"{outline.edge_path(uncapped[0])} always holds, so Otherwise never does",
                "Give that edge a condition, or max_traversals.",
            )
    for number in otherwise[1:]:
        report.warning(
            WarningCode.TWO_OTHERWISE,
            f"{outline.edge_path(number)}.condition.otherwise",
            f"{outline.edge_path(otherwise[0])} is an Otherwise too: both are followed",
            "Keep one of them, unless both ways are meant.",
        )
    if any(edges[number].condition.HasField("error_occurred") for number in plain):
        for number in always:
            report.warning(
                WarningCode.UNCONDITIONAL_BESIDE_ERROR,
                outline.edge_path(number),
                "after an error that is a result, it and the ErrorOccurred edge are followed",
                "For either-or use Otherwise.",
            )


def _check_duplicates(report: Report, outline: Outline, leaving: Sequence[int]) -> None:
    seen: dict[tuple[int, bool, bytes], int] = {}
    for number in leaving:
        edge = outline.definition.edges[number]
        key = (outline.target_of(number), edge.handoff, condition_key(edge))
        first = seen.setdefault(key, number)
        if first != number:
            report.warning(
                WarningCode.DUPLICATE_EDGE,
                outline.edge_path(number),
                f"{outline.edge_path(first)} has the same ends and the same condition",
                "Remove one of them.",
            )
