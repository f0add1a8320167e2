"""Which graphs a definition names, and where."""

from __future__ import annotations

from stepgraph_server.core.references import Reference, references_of
from tests.support.graphs import graph


def test_nodes_and_tools_name_graphs_at_any_depth() -> None:
    inner = {
        "name": "i",
        "entry_point": "x",
        "nodes": [{"id": "x", "action": {"subgraph": {"graph": {"reference": "deep@2"}}}}],
    }
    definition = graph(
        {
            "a": {"action": {"subgraph": {"graph": {"definition": inner}}}},
            "b": {"action": {"subgraph": {"graph": {"same_version": {}}}}},
        },
        tools=[
            {"definition": {"name": "t"}},
            {"definition": {"name": "u"}, "graph": {"reference": "research"}},
        ],
    )
    assert list(references_of(definition)) == [
        Reference(
            "nodes[0].action.subgraph.graph.definition.nodes[0].action.subgraph.graph.reference",
            "deep@2",
        ),
        Reference("tools[1].graph.reference", "research"),
    ]
