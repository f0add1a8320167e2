"""Graphs in a file; that they keep the contract is tested in tests/contracts."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING

from stepgraph_server.core.instants import Instant
from stepgraph_server.storage.graphs import GraphReference

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.contracts.storing import Bench


async def test_a_definition_is_stored_once(bench: Bench, path: Path) -> None:
    """However many names it has."""
    for name in ("", "a", "b"):
        await bench.store.graphs.put("default", name, "sha256:1", b"one", Instant(1))
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM graphs").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM graph_versions").fetchone() == (2,)
    connection.close()


async def test_versions_have_no_upper_end(bench: Bench) -> None:
    """The first page begins at whatever is the newest."""
    for number in range(1, 12):
        await bench.store.graphs.put("default", "g", f"sha256:{number}", b"x", Instant(number))
    page = await bench.store.graphs.list_versions("default", "g", None, 3)
    assert [one.version for one in page] == [11, 10, 9]


async def test_what_a_name_stands_for_is_remembered_until_a_graph_is_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every start of a run asks for it."""
    graphs = bench.store.graphs
    latest = GraphReference(name="g")
    await graphs.put("default", "g", "sha256:1", b"one", Instant(1))
    first = await graphs.get("default", latest)
    with monkeypatch.context() as without_reads:
        without_reads.setattr(graphs, "_read", None)
        assert await graphs.get("default", latest) == first
    await graphs.put("default", "g", "sha256:2", b"two", Instant(2))
    second = await graphs.get("default", latest)
    assert second is not None
    assert (second.version, second.definition) == (2, b"two")


async def test_what_was_read_while_a_graph_was_stored_is_not_remembered(bench: Bench) -> None:
    """It may be what was there before."""
    graphs = bench.store.graphs
    latest = GraphReference(name="g")
    for number in range(1, 30):
        digest = f"sha256:{number}"
        reading = [asyncio.create_task(graphs.get("default", latest)) for _ in range(3)]
        await graphs.put("default", "g", digest, b"x", Instant(number))
        found = await graphs.get("default", latest)
        assert found is not None
        assert found.digest == digest
        await asyncio.gather(*reading)
        assert await graphs.get("default", latest) == found


async def test_nothing_is_remembered_once_nobody_knows_whether_a_graph_is_stored(
    bench: Bench,
) -> None:
    """Whoever stored it went away: it may be there already, or in a moment."""
    graphs = bench.store.graphs
    latest = GraphReference(name="g")
    await graphs.put("default", "g", "sha256:1", b"one", Instant(1))
    await graphs.get("default", latest)
    leaving = asyncio.create_task(graphs.put("default", "g", "sha256:2", b"two", Instant(2)))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait([leaving])
    # A write that comes later is done later.
    await graphs.put("default", "other", "sha256:3", b"three", Instant(3))
    found = await graphs.get("default", latest)
    assert found is not None
    assert found.digest == "sha256:2"
