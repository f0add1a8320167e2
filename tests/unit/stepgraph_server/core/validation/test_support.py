"""What this server does not do yet."""

from __future__ import annotations

from stepgraph.v1 import graph_pb2
from stepgraph_server.core.validation import check, support
from tests.support.graphs import DEFAULTS, graph, problems


def test_a_graph_that_asks_for_more_is_refused() -> None:
    tools = graph({"a": {"answers": "t"}}, tools=[{"definition": {"name": "t"}}])
    assert problems(tools) == {
        ("NOT_YET_SUPPORTED", "tools"),
        ("NOT_YET_SUPPORTED", "nodes[0].answers"),
    }


def test_every_line_of_the_table_is_a_field_of_the_schema() -> None:
    tables = (
        (graph_pb2.StateGraph.DESCRIPTOR, support.GRAPH_FIELDS),
        (graph_pb2.GraphNode.DESCRIPTOR, support.NODE_FIELDS),
    )
    for descriptor, paths in tables:
        for path in paths:
            current = descriptor
            for name in path.split("."):
                assert current is not None
                current = current.fields_by_name[name].message_type


def test_the_hint_says_what_to_do() -> None:
    tools = graph(tools=[{"definition": {"name": "t"}}])
    (problem,) = check(tools, DEFAULTS).findings.problems
    assert problem.hint
