"""A store in a file, and what looks into the file beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stepgraph_server.storage.sqlite import SqliteStore
from stepgraph_server.storage.sqlite.connection import open_writer
from stepgraph_server.storage.sqlite.migrate import known_migrations, migrate
from tests.contracts.storing import Bench

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def bench(path: Path) -> AsyncIterator[Bench]:
    opened = await Bench(SqliteStore(path)).start()
    yield opened
    await opened.store.close()


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that may write, to an empty database of the newest schema."""
    opened = open_writer(path)
    migrate(opened, str(path), known_migrations())
    yield opened
    opened.close()
