"""Graphs by chance: forks, joins, loops with caps, conditions of several kinds, reducers. All of them are valid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.json_format import ParseDict
from hypothesis import assume
from hypothesis import strategies as st

from stepgraph.v1 import graph_pb2
from stepgraph_server.core.graph import GraphDefaults, check_graph, compile_graph

if TYPE_CHECKING:
    from stepgraph_server.core.graph import CompiledGraph

VARIABLES = {"log": "REDUCER_APPEND", "total": "REDUCER_SUM", "last": "REDUCER_REPLACE"}
MAX_NODES = 7
_CALL = {"tool_call": {"tool_name": "t", "args_template": "{}"}}

_ACTIONS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"assign": {"set": {"log": "'x'", "total": "iterations"}}},
        {"assign": {"set": {"last": "'a'"}, "message_template": "at {{total?}}"}},
        {"assign": {"unset": ["last"]}},
        {"condition_check": {"condition": "last==a"}},
        {"human_approval": {"description": "go on?"}},
        _CALL,
        _CALL,
        _CALL,
    ]
)
_CONDITIONS: st.SearchStrategy[dict[str, Any] | None] = st.sampled_from(
    [
        None,
        None,
        None,
        {"expression": {"cel": "has(vars.last)"}},
        {"state_equals": {"variable": "_approval", "value": "abort"}},
        {"error_occurred": {}},
        {"iteration_exceeds": {"count": 3}},
        {"custom": {"name": "good"}},
    ]
)


@st.composite
def graphs(draw: st.DrawFn) -> CompiledGraph:
    """Return a compiled graph. Every node can be reached; edges back have a cap."""
    count = draw(st.integers(2, MAX_NODES))
    nodes = [_node(draw, index) for index in range(count)]
    edges = [_edge(draw, draw(st.integers(0, index - 1)), index) for index in range(1, count)]
    for _ in range(draw(st.integers(count // 2, 2 * count))):
        source, target = draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))
        edges.append(_edge(draw, source, target))
    sources = sorted({edge["source"] for edge in edges})
    edges += [
        {"source": source, "target": f"n{count - 1}", "condition": {"otherwise": {}}}
        for source in sources
        if draw(st.integers(0, 3)) and _may_have_otherwise(source, edges)
    ]
    definition = ParseDict(
        {
            "name": "g",
            "nodes": nodes,
            "edges": edges,
            "entry_point": "n0",
            "terminal_nodes": [f"n{count - 1}"] if draw(st.booleans()) else [],
            "reducers": VARIABLES,
            "max_iterations": draw(st.integers(4, 12)),
            "retry": {"max_tries": draw(st.integers(1, 2)), "first_delay": "1s", "jitter": 0},
        },
        graph_pb2.StateGraph(),
    )
    assume(not check_graph(definition, GraphDefaults()).problems)
    return compile_graph(definition, GraphDefaults())


def _node(draw: st.DrawFn, index: int) -> dict[str, Any]:
    node: dict[str, Any] = {"id": f"n{index}", "action": draw(_ACTIONS)}
    if index and draw(st.integers(0, 3)) == 0:
        node["join"] = "NODE_JOIN_ALL"
    if draw(st.integers(0, 6)) == 0:
        node["interrupt"] = True
    if "tool_call" in node["action"]:
        node["output_variable"] = draw(st.sampled_from(["", "log", "last"]))
    return node


def _edge(draw: st.DrawFn, source: int, target: int) -> dict[str, Any]:
    edge: dict[str, Any] = {"source": f"n{source}", "target": f"n{target}"}
    condition = draw(_CONDITIONS)
    if condition is not None:
        edge["condition"] = condition
    if target <= source:
        edge["max_traversals"] = draw(st.integers(1, 2))
    return edge


def _may_have_otherwise(source: str, edges: list[dict[str, Any]]) -> bool:
    return all(
        "condition" in edge or "max_traversals" in edge
        for edge in edges
        if edge["source"] == source
    )


__all__ = ["graphs"]
