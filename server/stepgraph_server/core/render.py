"""A graph as a drawing in the language of Mermaid, on request with the path of a run.

Rules: whatever a graph brings, a name, a condition, a prompt, goes into a label and nowhere else, quoted and with every
character escaped that could end the label; the ids of the drawing are ours. The same graph gives the same text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, assert_never

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepgraph.v1.edge_condition_pb2 import EdgeCondition
    from stepgraph.v1.graph_pb2 import NodeAction
    from stepgraph_server.core.graph import CompiledEdge, CompiledGraph, CompiledNode

MAX_LABEL_CHARACTERS: Final = 80
MAX_SHOWN_CODES: Final = 3

#: All but letters and digits of any script, and the marks that mean nothing to Mermaid or HTML.
_UNSAFE: Final = re.compile(r"[^\w .,:=!?+/()'…-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkedPath:
    """Where a run has been.

    Attributes:
        node_counts: How often each node has run, by id.
        edge_counts: How often each edge was followed, by id.
        current: The nodes that run now.
    """

    node_counts: Mapping[str, int] = field(default_factory=dict)
    edge_counts: Mapping[str, int] = field(default_factory=dict)
    current: frozenset[str] = frozenset()


def render(graph: CompiledGraph, path: WalkedPath | None = None) -> str:
    """Draw a graph; with a path, what was not walked is faint, and counts are shown."""
    walked = path or WalkedPath()
    lines = ["flowchart TD", "    start(( ))"]
    lines += [f"    {_node(node, walked)}" for node in graph.ordered]
    lines.append(f"    start --> n{graph.entry.index}")
    lines += [f"    {_edge(graph, edge, walked)}" for edge in graph.edges]
    if path is not None:
        lines += _styles(graph, path)
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Return a text for a quoted label: one line, cut if it is long, with entities for what Mermaid would read."""
    line = " ".join("".join(mark if mark.isprintable() else " " for mark in text).split())
    if len(line) > MAX_LABEL_CHARACTERS:
        line = line[: MAX_LABEL_CHARACTERS - 1] + "…"
    return _UNSAFE.sub(lambda match: f"#{ord(match.group())};", line)


def _times(word: str, count: int) -> str:
    return f"{word} once" if count == 1 else f"{word} {count} times"


# ---- nodes -------------------------------------------------------------------------------------


def _node(node: CompiledNode, walked: WalkedPath) -> str:
    count = walked.node_counts.get(node.id, 0)
    parts = [escape(node.id), escape(action_label(node.definition.action))]
    if node.join_all:
        parts.append("joins all")
    if node.interrupt:
        parts.append("asks first")
    if count:
        parts.append(_times("ran", count))
    label = '"' + "<br/>".join(parts) + '"'
    opening, closing = _shape(node)
    return f"n{node.index}{opening}{label}{closing}"


def _shape(node: CompiledNode) -> tuple[str, str]:
    if node.terminal:
        return "([", "])"
    if node.interrupt or node.action_kind == "human_approval":
        return "{{", "}}"
    if node.action_kind == "condition_check":
        return "{", "}"
    return "[", "]"


def action_label(action: NodeAction) -> str:
    """Return what an action does, in a few words."""
    kind = action.WhichOneof("kind") or "nothing"
    names = {
        "llm_infer": action.llm_infer.model,
        "tool_call": action.tool_call.tool_name,
        "delegate": action.delegate.agent_kind,
        "condition_check": action.condition_check.condition,
        "switch_paradigm": action.switch_paradigm.paradigm,
        "step": action.step.program,
        "subgraph": action.subgraph.graph.reference,
        "wait_signal": action.wait_signal.name,
    }
    name = names.get(kind, "")
    words = kind.replace("_", " ")
    return f"{words}: {name}" if name else words


# ---- edges -------------------------------------------------------------------------------------


def _edge(graph: CompiledGraph, edge: CompiledEdge, walked: WalkedPath) -> str:
    count = walked.edge_counts.get(edge.id, 0)
    condition = graph.definition.edges[edge.index].condition
    parts = ["handoff"] if edge.handoff else [condition_label(condition)]
    if edge.max_traversals:
        parts.append(_times("at most", edge.max_traversals))
    if count:
        parts.append(_times("followed", count))
    arrow = "-.->" if edge.handoff else "==>" if count else "-->"
    label = " · ".join(escape(part) for part in parts if part)
    text = f'|"{label}"|' if label else ""
    source, target = graph.nodes[edge.source], graph.nodes[edge.target]
    return f"n{source.index} {arrow}{text} n{target.index}"


def condition_label(condition: EdgeCondition) -> str:  # one line per variant
    """Return what must hold, in a few words; empty for an unconditional edge."""
    match condition.WhichOneof("kind"):
        case None | "always":
            return ""
        case "has_tool_calls" | "is_final_answer" | "requests_delegation" | "otherwise" as kind:
            return kind.replace("_", " ")
        case "error_occurred":
            return _error_label(condition.error_occurred)
        case "state_equals":
            return f"{condition.state_equals.variable} = {condition.state_equals.value}"
        case "custom":
            return f"{condition.custom.name}?"
        case "paradigm_equals":
            return f"paradigm = {condition.paradigm_equals.paradigm}"
        case "iteration_exceeds":
            return f"iterations > {condition.iteration_exceeds.count}"
        case "expression":
            return condition.expression.cel
        case _ as unreachable:
            assert_never(unreachable)


def _error_label(condition: EdgeCondition.ErrorOccurred) -> str:
    if not condition.codes:
        return "error"
    more = "…" if len(condition.codes) > MAX_SHOWN_CODES else ""
    return f"error {', '.join(condition.codes[:MAX_SHOWN_CODES])}{more}"


# ---- the path ----------------------------------------------------------------------------------


def _styles(graph: CompiledGraph, path: WalkedPath) -> list[str]:
    groups: dict[str, list[str]] = {"current": [], "ran": [], "idle": []}
    for node in graph.ordered:
        if node.id in path.current:
            group = "current"
        elif path.node_counts.get(node.id):
            group = "ran"
        else:
            group = "idle"
        groups[group].append(f"n{node.index}")
    return [
        "    classDef current stroke-width:4px",
        "    classDef ran stroke-width:2px",
        "    classDef idle opacity:0.5",
        *(f"    class {','.join(names)} {group}" for group, names in groups.items() if names),
    ]
