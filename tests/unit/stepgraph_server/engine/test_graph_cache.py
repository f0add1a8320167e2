"""Compiled graphs are kept by their digest."""

from __future__ import annotations

import pytest

from stepgraph_server.core.errors import GraphInvalid, Refused
from stepgraph_server.core.instants import Instant
from stepgraph_server.core.policies import GraphDefaults
from stepgraph_server.engine import graph_cache
from stepgraph_server.engine.graph_cache import GraphCache
from stepgraph_server.storage.memory import MemoryStore
from tests.support.graphs import graph


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def cache(store) -> GraphCache:
    return GraphCache(store.graphs, GraphDefaults())


async def put(store, cache, definition, name: str = "g") -> str:
    digest = GraphCache(store.graphs, GraphDefaults()).compile(definition).digest
    await store.graphs.put("default", name, digest, definition.SerializeToString(), Instant(0))
    return digest


async def test_a_stored_graph_is_compiled_once(store, cache):
    digest = await put(store, cache, graph("a"))
    compiled = await cache.by_digest("default", digest)
    assert await cache.by_digest("default", digest) is compiled
    record, again = await cache.by_reference("default", "g@1")
    assert (record.name, record.version) == ("g", 1)
    assert again is compiled


def test_a_definition_that_comes_again_is_not_compiled_again(cache, monkeypatch):
    """Callers may send their graph with every start."""
    first = cache.compile(graph("a"))
    monkeypatch.setattr(graph_cache, "compile_graph", None)
    again = graph("a")
    assert cache.compile(again) is first


def test_a_definition_with_fields_that_nobody_knows_is_refused_by_its_check(cache):
    """It has no digest to look for."""
    definition = graph("a")
    definition.MergeFromString(b"\xc0\xb2\x04\x01")
    with pytest.raises(GraphInvalid):
        cache.compile(definition)


async def test_a_graph_that_is_not_there_is_refused(cache):
    with pytest.raises(Refused, match="GRAPH_NOT_FOUND"):
        await cache.by_reference("default", "nothing")
    with pytest.raises(Refused, match="GRAPH_NOT_FOUND"):
        await cache.by_digest("default", "sha256:" + "0" * 64)


async def test_a_reference_that_is_none_is_refused(cache):
    with pytest.raises(Refused, match="INVALID_REQUEST"):
        await cache.by_reference("default", "g@x")


def test_a_broken_graph_is_not_kept(cache):
    with pytest.raises(GraphInvalid):
        cache.compile(graph("a", ["a > nowhere"]))
    assert not cache._compiled


async def test_the_graph_that_was_used_longest_ago_is_forgotten(store, cache, monkeypatch):
    monkeypatch.setattr(graph_cache, "MAX_CACHED", 2)
    first = await put(store, cache, graph("a"), "a")
    one = await cache.by_digest("default", first)
    two = cache.compile(graph("b"))
    assert await cache.by_digest("default", first) is one
    three = cache.compile(graph("c"))
    assert list(cache._compiled.values()) == [one, three]
    assert cache.compile(graph("b")) is not two
