"""Every backend, behind one fixture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from stepgraph_server.storage.memory import MemoryStore
from stepgraph_server.storage.sqlite import SqliteStore
from tests.contracts.storing import Bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stepgraph_server.storage.store import Store


class Backend(Protocol):
    """Makes a store; the second one opens what the first has left."""

    def open(self) -> Store: ...


class _Memory:
    def __init__(self) -> None:
        self._store = MemoryStore()

    def open(self) -> Store:
        return self._store


class _Sqlite:
    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> Store:
        return SqliteStore(self.path)


@pytest.fixture(params=["memory", "sqlite"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return _Memory() if request.param == "memory" else _Sqlite(tmp_path / "store.db")


@pytest.fixture
async def bench(backend: Backend) -> AsyncIterator[Bench]:
    opened = await Bench(backend.open()).start()
    yield opened
    await opened.store.close()
