from __future__ import annotations

import pytest

from stepgraph.v1.graph_pb2 import StateGraph
from stepgraph.v1.graph_service_pb2 import GraphProblem
from stepgraph_client.errors import GraphInvalid, NotFound
from stepgraph_client.graphs import Graph
from tests.support.fake_server import LOST


def graph(name: str, nodes: int = 1) -> Graph:
    built = Graph(name)
    for n in range(nodes):
        built.assign(f"n{n}")
    return built


async def test_a_graph_is_registered_once_for_each_content(client, server) -> None:
    server.refuse("RegisterGraph", LOST)
    first = await client.register_graph(graph("g"))
    again = await client.register_graph(graph("g").build())
    other = await client.register_graph(graph("g", 2))
    assert [(each.version.version, each.created) for each in (first, again, other)] == [
        (1, True),
        (1, False),
        (2, True),
    ]
    assert len({each.request_id for each in server.requests["RegisterGraph"][:2]}) == 1


async def test_a_broken_graph_is_refused_with_its_first_problem_and_validated_with_all(
    client, server
) -> None:
    server.problems = [
        GraphProblem(code="A", path="nodes[0]", message="bad", hint="mend it"),
        GraphProblem(code="B", path="nodes[1]", message="worse"),
    ]
    with pytest.raises(GraphInvalid, match=r"nodes\[0\]: bad \[A\]"):
        await client.register_graph(graph("g"))
    checked = await client.validate_graph(StateGraph(name="g"))
    assert [each.code for each in checked.problems] == ["A", "B"]


async def test_graphs_are_read_listed_and_drawn(client) -> None:
    for name in ("a", "b", "c"):
        await client.register_graph(graph(name))
    for nodes in range(2, 5):
        await client.register_graph(graph("a", nodes))
    assert (await client.get_graph("a")).version.version == 4
    assert [each.name async for each in client.list_graphs()] == ["a", "b", "c"]
    assert [each.version async for each in client.list_graph_versions("a")] == [4, 3, 2, 1]
    assert await client.render_graph("a", run_id="r") == "flowchart TD"


async def test_a_graph_that_is_not_there_is_not_found(client) -> None:
    with pytest.raises(NotFound, match="there is no graph g"):
        await client.get_graph("g")
