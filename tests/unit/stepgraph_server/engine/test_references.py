"""What references to graphs stand for; that it stays so in a whole tree is in test_children.py."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stepgraph.v1 import graph_pb2, run_pb2
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.graph import GraphDefaults
from stepgraph_server.core.instants import Instant
from stepgraph_server.core.references import Reference
from stepgraph_server.engine.graph_cache import GraphCache
from stepgraph_server.engine.references import MAX_RESOLVED, resolve
from stepgraph_server.storage.memory import MemoryGraphs
from tests.support.graphs import graph


def naming(*references: str) -> graph_pb2.StateGraph:
    """Build a graph whose nodes run graphs."""
    nodes = {
        f"n{number}": {"action": {"subgraph": {"graph": {"reference": reference}}}}
        for number, reference in enumerate(references)
    }
    names = list(nodes)
    edges = [f"{one} > {two}" for one, two in pairwise(names)]
    return graph(nodes or "a", edges)


async def stored(**definitions: graph_pb2.StateGraph) -> GraphCache:
    """Store graphs under names."""
    graphs = MemoryGraphs()
    cache = GraphCache(graphs, GraphDefaults())
    for name, definition in definitions.items():
        raw = definition.SerializeToString(deterministic=True)
        await graphs.put("default", name, cache.compile(definition).digest, raw, Instant(1))
    return cache


async def test_what_a_graph_leads_to_is_found_with_it_and_loops_end() -> None:
    graphs = await stored(a=naming("b", "c@1"), b=naming("a"), c=naming())
    found = await resolve(graphs, "default", [Reference("here", "a")], {})
    assert {name: (each.name, each.version) for name, each in found.items()} == {
        "a": ("a", 1),
        "b": ("b", 1),
        "c@1": ("c", 1),
    }


async def test_what_is_known_is_not_asked_again() -> None:
    graphs = await stored(a=naming("gone"))
    known = {"gone": run_pb2.GraphVersion(digest="sha256:1")}
    assert set(await resolve(graphs, "default", [Reference("here", "a")], known)) == {"a"}


async def test_what_is_not_there_is_named_with_the_way_to_it() -> None:
    graphs = await stored(a=naming("b"), b=naming("gone@7"))
    with pytest.raises(Refused) as refused:
        await resolve(graphs, "default", [Reference("here", "a")], {})
    assert refused.value.reason == "GRAPH_NOT_FOUND"
    assert refused.value.metadata["graph"] == "gone@7"
    [violation] = refused.value.violations
    assert violation.path == "b: nodes[0].action.subgraph.graph.reference"


async def test_a_tree_names_no_more_graphs_than_its_runs_can_carry() -> None:
    names = [f"g{number}" for number in range(MAX_RESOLVED + 1)]
    graphs = await stored(**{name: naming() for name in names})
    references = [Reference("here", name) for name in names]
    assert len(await resolve(graphs, "default", references[:-1], {})) == MAX_RESOLVED
    with pytest.raises(Refused, match="name fewer"):
        await resolve(graphs, "default", references, {})
