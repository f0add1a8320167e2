"""The parts of a graph by themselves: its own fields, its nodes, its edges, and that every name leads somewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import graph_pb2
from stepgraph_server.core.policies import resolve_retry
from stepgraph_server.core.validation.actions import check_action, check_model
from stepgraph_server.core.validation.codes import ProblemCode, WarningCode
from stepgraph_server.core.validation.conditions import check_condition
from stepgraph_server.core.validation.graph_tools import check_answers, check_graph_tool
from stepgraph_server.core.validation.numbers import check_positive, check_retry
from stepgraph_server.core.validation.people import check_question
from stepgraph_server.core.validation.report import at_key, shown
from stepgraph_server.core.validation.texts import (
    MAX_METADATA_ENTRIES,
    MAX_SELECTOR_ENTRIES,
    check_filter,
    check_id,
    check_labels,
    check_schema,
    check_size,
    check_template,
    check_tool_name,
    check_written_variable,
)

if TYPE_CHECKING:
    from stepgraph_server.core.validation.outline import Outline
    from stepgraph_server.core.validation.report import Report

MAX_TOOL_DESCRIPTION_BYTES = 16 * 1024
MAX_CONDITIONAL_EDGES = 256
"""That leave one node: all of them are evaluated in one go, while every other run waits."""
_UNEVALUATED = (None, "always", "otherwise")


def check_fields(report: Report, outline: Outline) -> None:
    """Check what the graph says of itself."""
    graph, path = outline.definition, outline.path
    check_id(report, f"{path}name", graph.name, "a graph")
    check_labels(report, f"{path}metadata", graph.metadata, MAX_METADATA_ENTRIES)
    _check_ends(report, outline)
    for name in sorted(graph.paradigms):
        where = at_key(f"{path}paradigms", name)
        check_id(report, where, name, "a paradigm")
        check_template(report, f"{where}.system_prompt", graph.paradigms[name].system_prompt)
        check_filter(report, f"{where}.tool_filter", graph.paradigms[name].tool_filter)
    for variable in sorted(graph.reducers):
        where = at_key(f"{path}reducers", variable)
        check_written_variable(report, where, variable)
        if graph.reducers[variable] == graph_pb2.REDUCER_UNSPECIFIED:
            report.problem(
                ProblemCode.UNKNOWN_VARIANT,
                where,
                "a reducer must be named",
                "Use REPLACE, or leave the variable out.",
            )
    check_model(report, f"{path}default_model", graph.default_model)
    if graph.HasField("time_limit"):
        hint = "Leave it out for no limit."
        check_positive(report, f"{path}time_limit", graph.time_limit, hint)
    check_retry(report, f"{path}retry", graph.retry, outline.defaults.retry)
    check_filter(report, f"{path}approval_filter", graph.approval_filter)
    _check_tools(report, outline)


def _check_ends(report: Report, outline: Outline) -> None:
    graph, path = outline.definition, outline.path
    if not graph.nodes:
        report.problem(
            ProblemCode.REQUIRED, f"{path}nodes", "a graph has at least one node", "Add a node."
        )
    if not graph.entry_point:
        report.problem(
            ProblemCode.REQUIRED,
            f"{path}entry_point",
            "no node runs first",
            "Name the node that does.",
        )
    else:
        _check_node_exists(report, f"{path}entry_point", graph.entry_point, outline)
    seen: set[str] = set()
    for index, end in enumerate(graph.terminal_nodes):
        where = f"{path}terminal_nodes[{index}]"
        _check_node_exists(report, where, end, outline)
        if end in seen:
            report.warning(
                WarningCode.DUPLICATE_ENTRY, where, f"{shown(end)} is listed twice", "Remove one."
            )
        seen.add(end)


def _check_node_exists(report: Report, path: str, node: str, outline: Outline) -> None:
    if node not in outline.index:
        hint = report.closest(node, outline.index.keys())
        report.problem(ProblemCode.UNKNOWN_NODE, path, f"there is no node {shown(node)}", hint)


def _check_tools(report: Report, outline: Outline) -> None:
    seen: set[str] = set()
    for index, tool in enumerate(outline.definition.tools):
        path = f"{outline.path}tools[{index}]"
        where = f"{path}.definition"
        name = tool.definition.name
        check_tool_name(report, f"{where}.name", name)
        if name and name in seen:
            report.problem(
                ProblemCode.DUPLICATE_ID, f"{where}.name", f"the tool {shown(name)} occurs twice"
            )
        seen.add(name)
        check_size(
            report,
            f"{where}.description",
            tool.definition.description,
            MAX_TOOL_DESCRIPTION_BYTES,
        )
        check_schema(report, f"{where}.input_schema", tool.definition.input_schema)
        check_schema(report, f"{where}.output_schema", tool.definition.output_schema)
        check_graph_tool(report, path, tool, outline)


def check_nodes(report: Report, outline: Outline) -> None:
    """Check every node."""
    retry = resolve_retry(outline.defaults.retry, outline.definition.retry)
    for number, node in enumerate(outline.definition.nodes):
        path = outline.node_path(number)
        if check_id(report, f"{path}.id", node.id, "a node") and outline.index[node.id] != number:
            report.problem(
                ProblemCode.DUPLICATE_ID,
                f"{path}.id",
                f"{outline.node_path(outline.index[node.id])} has the id {node.id} too",
                "Rename one of them.",
            )
        if node.HasField("action"):
            check_action(report, f"{path}.action", node.action, outline)
        else:
            report.problem(
                ProblemCode.UNKNOWN_VARIANT,
                f"{path}.action",
                "no variant is set",
                "Say what the node does; an empty Assign only passes on.",
            )
        check_labels(report, f"{path}.metadata", node.metadata, MAX_METADATA_ENTRIES)
        check_labels(report, f"{path}.selector", node.selector, MAX_SELECTOR_ENTRIES)
        check_retry(report, f"{path}.retry", node.retry, retry)
        if node.output_variable:
            check_written_variable(report, f"{path}.output_variable", node.output_variable)
        if node.HasField("interrupt_options"):
            check_question(report, path, node)
        if node.answers:
            check_answers(report, number, outline)
        if node.action.HasField("subgraph"):
            _check_ignored(report, path, node)


def _check_ignored(report: Report, path: str, node: graph_pb2.GraphNode) -> None:
    """Warn of what says nothing about a child run, whose nodes have tries and limits of their own."""
    for name, is_set in (("retry", node.HasField("retry")), ("limits", node.HasField("limits"))):
        if is_set:
            report.warning(
                WarningCode.FIELD_IGNORED,
                f"{path}.{name}",
                "a child run is not tried again, and waits for no executor",
                "Set it at the nodes of its graph; how long the child may take is time_limit of the action.",
            )


def _check_conditions(report: Report, outline: Outline) -> None:
    """Check how many conditions each node evaluates when it ends."""
    edges = outline.definition.edges
    for number, leaving in enumerate(outline.leaving):
        count = sum(
            edges[each].condition.WhichOneof("kind") not in _UNEVALUATED for each in leaving
        )
        if count > MAX_CONDITIONAL_EDGES:
            report.problem(
                ProblemCode.TOO_MANY,
                outline.node_path(number),
                f"{count} edges with conditions leave it, of at most {MAX_CONDITIONAL_EDGES}",
                "Decide in steps: let edges lead to nodes that decide further.",
            )


def check_edges(report: Report, outline: Outline) -> None:
    """Check every edge by itself."""
    _check_conditions(report, outline)
    first_with: dict[str, int] = {}
    for number, edge in enumerate(outline.definition.edges):
        path = outline.edge_path(number)
        if edge.id and check_id(report, f"{path}.id", edge.id, "an edge"):
            first = first_with.setdefault(edge.id, number)
            if first != number:
                report.problem(
                    ProblemCode.DUPLICATE_ID,
                    f"{path}.id",
                    f"{outline.edge_path(first)} has the id {edge.id} too",
                    "Rename one of them, or leave it out.",
                )
        for field, end in (("source", edge.source), ("target", edge.target)):
            if end:
                _check_node_exists(report, f"{path}.{field}", end, outline)
            else:
                report.problem(ProblemCode.REQUIRED, f"{path}.{field}", "an edge has two ends")
        if edge.HasField("condition"):
            check_condition(report, f"{path}.condition", edge.condition, outline)
        if edge.handoff:
            _check_handoff(report, number, outline)


def _check_handoff(report: Report, number: int, outline: Outline) -> None:
    edge = outline.definition.edges[number]
    path = outline.edge_path(number)
    if edge.HasField("condition"):
        report.problem(
            ProblemCode.HANDOFF_CONDITION,
            f"{path}.condition",
            "a handoff edge is followed by a Goto only, so it has no condition",
            "Remove the condition, or make two edges.",
        )
    source = outline.index.get(edge.source)
    if source is None:
        return
    action = outline.definition.nodes[source].action.WhichOneof("kind")
    if action not in (None, "step"):
        report.problem(
            ProblemCode.HANDOFF_SOURCE,
            f"{path}.handoff",
            f"{shown(edge.source)} is a {action}, and only a Step can send a Goto",
            "Use a condition.",
        )
