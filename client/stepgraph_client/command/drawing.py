"""A graph as lines for a terminal: nodes in the order in which a run can reach them, each with the ways that lead on.

Rules: pure, and narrow: what a graph is shows in its indentation and not in its width, so it can be read in 40 columns and be searched.
With a run's footprints each node and way says how often it was taken, by a mark as well as by a colour.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepgraph.v1.event_pb2 import EdgeVerdict
from stepgraph_client.lines import Line, Tone
from stepgraph_client.wording import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from stepgraph.v1.edge_condition_pb2 import EdgeCondition
    from stepgraph.v1.event_pb2 import RunEvent
    from stepgraph.v1.graph_pb2 import GraphEdge, GraphNode, StateGraph

#: Which field of an action, or of a condition, says most about it.
_TELLING = {
    "llm_infer": "model",
    "tool_call": "tool_name",
    "delegate": "agent_kind",
    "human_approval": "description",
    "condition_check": "condition",
    "switch_paradigm": "paradigm",
    "step": "program",
    "map": "items",
    "wait_signal": "name",
    "custom": "name",
    "paradigm_equals": "paradigm",
    "iteration_exceeds": "count",
    "expression": "cel",
}
_MAX_DETAIL = 60

#: What the marks of a path mean.
LEGEND = "✓ done, ▶ under way, ✗ failed, ○ not reached, ═▶ followed"


@dataclass(slots=True)
class Footprints:
    """What a run has done with a graph so far."""

    visits: Counter[str] = field(default_factory=Counter)
    edges: Counter[str] = field(default_factory=Counter)
    failed: set[str] = field(default_factory=set)
    live: set[str] = field(default_factory=set)

    def take(self, event: RunEvent) -> None:
        """Follow an event."""
        kind = event.WhichOneof("kind") or ""
        fact = getattr(event, kind, None)
        match kind:
            case "superstep_started":
                self.visits.update(event.superstep_started.nodes)
                self.live.update(event.superstep_started.nodes)
            case "node_completed" | "node_failed" | "node_cancelled":
                assert fact is not None
                self.live.discard(fact.node_id)
                if kind == "node_failed":
                    self.failed.add(fact.node_id)
            case "run_completed" | "run_failed" | "run_cancelled":
                self.live.clear()
            case _:
                pass
        for outcome in getattr(fact, "edges", ()):
            if outcome.verdict == EdgeVerdict.EDGE_VERDICT_FOLLOWED:
                self.edges[outcome.edge_id] += 1


def draw(graph: StateGraph, path: Footprints | None = None) -> Iterator[Line]:
    """Yield the lines of a graph; with a run's footprints, its path."""
    ends = set(graph.terminal_nodes)
    ways = _ways(graph)
    drawn: set[str] = set()
    for node in _in_order(graph, ways):
        drawn.add(node.id)
        yield _node_line(graph, node, is_end=node.id in ends, path=path)
        edges = ways.get(node.id, {})
        for at, (edge_id, edge) in enumerate(edges.items(), 1):
            corner = "└" if at == len(edges) else "├"
            yield _edge_line(edge_id, edge, corner, is_back=edge.target in drawn, path=path)


def edge_ids(edges: Iterable[GraphEdge]) -> Iterator[str]:
    """Yield the id of each edge; the server's for one that has none."""
    listed = list(edges)
    taken = {edge.id for edge in listed if edge.id}
    for edge in listed:
        name = edge.id or f"{edge.source}.{edge.target}"
        number = 1
        while not edge.id and name in taken:
            number += 1
            name = f"{edge.source}.{edge.target}.{number}"
        taken.add(name)
        yield name


def action_text(graph: StateGraph, node: GraphNode) -> str:
    """Return what a node does: "llm infer claude"."""
    kind = node.action.WhichOneof("kind") or "?"
    detail = _detail(node.action, kind)
    if kind == "llm_infer":
        detail = detail or graph.default_model
    if kind == "subgraph":
        reference = node.action.subgraph.graph
        detail = reference.reference or reference.definition.name
    words = kind.replace("_", " ")
    return f"{words} {detail}" if detail else words


def condition_text(condition: EdgeCondition) -> str:
    """Return what must hold: "is final answer", "vars.n > 3"."""
    kind = condition.WhichOneof("kind") or "?"
    match kind:
        case "state_equals":
            return f"{condition.state_equals.variable} is {condition.state_equals.value!r}"
        case "error_occurred":
            codes = ", ".join(condition.error_occurred.codes)
            return f"error {codes}" if codes else "any error"
        case "expression":
            return shortened(condition.expression.cel, _MAX_DETAIL)
        case _:
            detail = _detail(condition, kind)
            return f"{kind.replace('_', ' ')} {detail}" if detail else kind.replace("_", " ")


def _detail(message: object, kind: str) -> str:
    value = getattr(getattr(message, kind, None), _TELLING.get(kind, ""), "")
    return shortened(str(value), _MAX_DETAIL)


def _ways(graph: StateGraph) -> Mapping[str, Mapping[str, GraphEdge]]:
    """Return the edges of each node by their ids."""
    ways: dict[str, dict[str, GraphEdge]] = {}
    for edge_id, edge in zip(edge_ids(graph.edges), graph.edges, strict=True):
        ways.setdefault(edge.source, {})[edge_id] = edge
    return ways


def _in_order(
    graph: StateGraph, ways: Mapping[str, Mapping[str, GraphEdge]]
) -> Iterator[GraphNode]:
    """Yield nodes in the order in which they can be reached; last those that no edge leads to."""
    nodes = {node.id: node for node in graph.nodes}
    seen: set[str] = set()
    for start in (graph.entry_point, *nodes):
        waiting = [start]
        while waiting:
            node_id = waiting.pop(0)
            if node_id in seen or node_id not in nodes:
                continue
            seen.add(node_id)
            yield nodes[node_id]
            waiting += [edge.target for edge in ways.get(node_id, {}).values()]


def _node_line(
    graph: StateGraph, node: GraphNode, *, is_end: bool, path: Footprints | None
) -> Line:
    shape = "◎" if is_end else "●"
    tone = Tone.PLAIN
    times = ""
    if path is not None:
        visits = path.visits[node.id]
        shape, tone = _mark(node.id, path, is_end=is_end)
        times = _times(visits)
    marks = [
        *(["starts"] if node.id == graph.entry_point else []),
        *(["ends"] if is_end else []),
        *(["asks first"] if node.interrupt else []),
    ]
    noted = f"  [{', '.join(marks)}]" if marks else ""
    return Line(text=f"{shape} {node.id}  {action_text(graph, node)}{noted}{times}", tone=tone)


def _mark(node_id: str, path: Footprints, *, is_end: bool) -> tuple[str, Tone]:
    if node_id in path.live:
        return "▶", Tone.WARNING
    if node_id in path.failed:
        return "✗", Tone.BAD
    if path.visits[node_id]:
        return "✓", Tone.GOOD
    return "◎" if is_end else "○", Tone.QUIET


def _edge_line(
    edge_id: str, edge: GraphEdge, corner: str, *, is_back: bool, path: Footprints | None
) -> Line:
    followed = path.edges[edge_id] if path is not None else 0
    tone = Tone.PLAIN
    if path is not None:
        tone = Tone.GOOD if followed else Tone.QUIET
    arrow = "═▶" if followed else "─▶"
    when = f"  if {condition_text(edge.condition)}" if edge.HasField("condition") else ""
    notes = [
        *(["handoff"] if edge.handoff else []),
        *([f"at most {edge.max_traversals} times"] if edge.max_traversals else []),
        *(["back"] if is_back else []),
    ]
    noted = f"  ({', '.join(notes)})" if notes else ""
    text = f"  {corner}{arrow} {edge.target}{when}{noted}{_times(followed)}"
    return Line(text=text, tone=tone)


def _times(count: int) -> str:
    return f"  {count} times" if count > 1 else ""
