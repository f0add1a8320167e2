"""The port of a whole store; its contract is tested on every backend in tests/contracts."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepgraph_server.storage.memory import MemoryStore
from stepgraph_server.storage.sqlite import SqliteStore
from stepgraph_server.storage.store import Store
from tests.unit.stepgraph_server.storage.shapes import differences

PARTS = ("journal", "runs", "graphs", "values", "requests", "interrupts")


@pytest.mark.parametrize("backend", [MemoryStore, SqliteStore])
def test_every_backend_has_the_methods_of_the_port(backend: type) -> None:
    """With the same parameters, in the same order."""
    assert differences(Store, backend) == []


@pytest.mark.parametrize(
    "store", [MemoryStore(), SqliteStore(Path("nowhere.db"))], ids=["memory", "sqlite"]
)
def test_every_backend_has_the_parts_of_the_port(store: Store) -> None:
    """Before it is started too: the composition root hands them out."""
    for part in PARTS:
        assert getattr(store, part) is getattr(store, part)
