"""Graphs in a file; that they keep the contract is tested in tests/contracts."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from stepgraph_server.core.instants import Instant

if TYPE_CHECKING:
    from pathlib import Path

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
