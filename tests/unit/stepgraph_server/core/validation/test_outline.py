"""What several checks need to know."""

from __future__ import annotations

from stepgraph_server.core.validation.outline import outline
from tests.support.graphs import DEFAULTS, graph


def test_nodes_and_edges_are_numbered_as_they_stand() -> None:
    found = outline(graph("b a", ["b > a", "a > b"]), DEFAULTS, "")
    assert found.index == {"b": 0, "a": 1}
    assert found.leaving == [[0], [1]]
    assert found.successors == [[1], [0]]
    assert found.edge_ids == ("b.a", "a.b")
    assert found.target_of(0) == 1


def test_edges_with_unknown_ends_lead_nowhere() -> None:
    found = outline(graph("a b", ["a > x", "x > a", "a > b"]), DEFAULTS, "")
    assert found.leaving == [[2], []]


def test_nothing_leads_on_from_a_terminal_node() -> None:
    found = outline(graph("a b", ["a > b"], terminal_nodes=["a", "x"]), DEFAULTS, "")
    assert found.terminal == [True, False]
    assert found.leaving == [[0], []]
    assert found.successors == [[], []]


def test_of_equal_ids_the_first_counts() -> None:
    definition = graph("a b", ["a > b"])
    definition.nodes.add(id="a")
    assert outline(definition, DEFAULTS, "").index == {"a": 0, "b": 1}


def test_paths_begin_where_the_graph_stands() -> None:
    found = outline(graph(), DEFAULTS, "x.")
    assert (found.node_path(2), found.edge_path(3)) == ("x.nodes[2]", "x.edges[3]")
