"""The whole check of a graph, in one place.

Rules: sizes come first, because the rest may take time that grows with them. Nothing else stops the checks: a graph with a
dozen faults gives all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stepgraph_server.core.validation.codes import ProblemCode
from stepgraph_server.core.validation.flow import check_flow
from stepgraph_server.core.validation.outline import outline
from stepgraph_server.core.validation.parallel import check_parallel
from stepgraph_server.core.validation.report import Findings, Report
from stepgraph_server.core.validation.shape import check_shape
from stepgraph_server.core.validation.structure import check_edges, check_fields, check_nodes
from stepgraph_server.core.validation.support import check_support

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepgraph.v1.graph_pb2 import StateGraph
    from stepgraph_server.core.expressions import Expression
    from stepgraph_server.core.policies import GraphDefaults
    from stepgraph_server.core.validation.outline import Outline

MAX_GRAPH_BYTES: Final = 2 * 1024 * 1024
MAX_NODES: Final = 2_000
MAX_EDGES: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A definition that was checked.

    Attributes:
        findings: What was found.
        expressions: The expressions that compile, by source.
    """

    findings: Findings
    expressions: Mapping[str, Expression]


def check(definition: StateGraph, defaults: GraphDefaults) -> Checked:
    """Find everything that is wrong, or odd, about a graph. Changes nothing, and never raises for what is in it."""
    report = Report()
    expressions: dict[str, Expression] = {}
    if not _too_large(report, definition) and check_shape(report, "", definition):
        open_ = [outline(definition, defaults, "")]
        while open_:
            found = open_.pop()
            if _too_many(report, found):
                continue
            _check_graph(report, found)
            expressions.update(found.expressions)
            open_ += _inner_graphs(found)
    return Checked(findings=report.findings(), expressions=expressions)


def _too_large(report: Report, definition: StateGraph) -> bool:
    size = definition.ByteSize()
    if size > MAX_GRAPH_BYTES:
        report.problem(
            ProblemCode.TOO_LARGE,
            "",
            f"the graph has {size} bytes, of at most {MAX_GRAPH_BYTES}",
            "Split it into several graphs.",
        )
    return size > MAX_GRAPH_BYTES


def _too_many(report: Report, found: Outline) -> bool:
    graph = found.definition
    counts = (("nodes", len(graph.nodes), MAX_NODES), ("edges", len(graph.edges), MAX_EDGES))
    for field, count, limit in counts:
        if count > limit:
            report.problem(
                ProblemCode.TOO_MANY,
                f"{found.path}{field}",
                f"the graph has {count} {field}, of at most {limit}",
                "Split it into several graphs.",
            )
    return any(count > limit for _, count, limit in counts)


def _check_graph(report: Report, found: Outline) -> None:
    check_fields(report, found)
    check_nodes(report, found)
    check_edges(report, found)
    check_flow(report, found)
    check_parallel(report, found)
    check_support(report, found)


def _inner_graphs(found: Outline) -> list[Outline]:
    """Return the graphs that stand inside this one. That they end, the depth of messages sees to."""
    inside = [
        (f"{found.node_path(number)}.action.subgraph.graph", node.action.subgraph.graph)
        for number, node in enumerate(found.definition.nodes)
    ]
    inside += [
        (f"{found.path}tools[{number}].graph", tool.graph)
        for number, tool in enumerate(found.definition.tools)
    ]
    return [
        outline(graph.definition, found.defaults, f"{path}.definition.")
        for path, graph in inside
        if graph.HasField("definition")
    ]
