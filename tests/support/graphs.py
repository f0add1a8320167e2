"""Graphs for tests, written short.

A node that says nothing is an empty Assign; an edge is `"a > b"`, or that with more of its fields. All fields are written
as in the JSON form of the schema, with the names of the .proto files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from google.protobuf.json_format import ParseDict

from stepgraph.v1.graph_pb2 import StateGraph
from stepgraph_server.core.graph import GraphDefaults
from stepgraph_server.core.validation import check

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stepgraph_server.core.errors import Problem

Fields: TypeAlias = "Mapping[str, object]"
EdgeText: TypeAlias = "str | tuple[str, Fields]"

DEFAULTS = GraphDefaults()


def graph(
    nodes: Mapping[str, Fields] | str = "a", edges: Iterable[EdgeText] = (), **fields: object
) -> StateGraph:
    """Build a graph named "g" that starts with its first node, unless `fields` say otherwise."""
    given: Mapping[str, Fields] = (
        {name: {} for name in nodes.split()} if isinstance(nodes, str) else nodes
    )
    content: dict[str, object] = {
        "name": "g",
        "entry_point": next(iter(given), ""),
        "nodes": [{"id": name, "action": {"assign": {}}, **node} for name, node in given.items()],
        "edges": [_edge(edge) for edge in edges],
    }
    content.update(fields)
    return ParseDict(content, StateGraph())


def condition(text: str, kind: str, **fields: object) -> EdgeText:
    """Write an edge with a condition."""
    return text, {"condition": {kind: fields}}


def with_action(kind: str, **fields: object) -> StateGraph:
    """Build a graph of one node with this action."""
    return graph({"a": {"action": {kind: fields}}})


def problems(definition: StateGraph) -> set[tuple[str, str]]:
    """Return the codes and paths of what must be mended."""
    return _pairs(check(definition, DEFAULTS).findings.problems)


def warnings(definition: StateGraph) -> set[tuple[str, str]]:
    """Return the codes and paths of what is odd."""
    return _pairs(check(definition, DEFAULTS).findings.warnings)


def supported(found: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Leave out what this server does not do yet, for tests of what is wrong besides."""
    return {(code, path) for code, path in found if code != "NOT_YET_SUPPORTED"}


def chain(count: int) -> StateGraph:
    """Build a valid graph of many nodes: a long way with ways back, conditions, templates and model calls."""
    nodes: dict[str, Fields] = {}
    edges: list[EdgeText] = []
    for number in range(count):
        name = f"n{number}"
        match number % 3:
            case 0:
                nodes[name] = {
                    "action": {"llm_infer": {"prompt_template": f"{number}: {{{{x?}}}}"}}
                }
            case 1:
                nodes[name] = {"action": {"assign": {"set": {"x": f"iterations + {number % 50}"}}}}
            case _:
                nodes[name] = {"action": {"condition_check": {"condition": "x==1"}}}
        if number + 1 < count:
            cel = f"iterations > {number % 100}"
            edges.append(condition(f"{name} > n{number + 1}", "expression", cel=cel))
        if 1 < number < count - 1:
            edges.append(condition(f"{name} > n{number - 2}", "otherwise"))
    return graph(nodes, edges, terminal_nodes=[f"n{count - 1}"], default_model="m")


def _edge(edge: EdgeText) -> dict[str, object]:
    text, fields = (edge, {}) if isinstance(edge, str) else edge
    source, _, target = text.partition(" > ")
    return {"source": source, "target": target, **fields}


def _pairs(found: Iterable[Problem]) -> set[tuple[str, str]]:
    return {(problem.code, problem.path) for problem in found}
