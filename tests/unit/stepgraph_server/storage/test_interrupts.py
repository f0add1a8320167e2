"""The port of questions; its contract is tested on every backend in tests/contracts."""

from __future__ import annotations

import pytest

from stepgraph_server.storage.interrupts import Interrupts
from stepgraph_server.storage.memory import MemoryInterrupts
from stepgraph_server.storage.sqlite.interrupts import SqliteInterrupts
from tests.unit.stepgraph_server.storage.shapes import differences


@pytest.mark.parametrize("backend", [MemoryInterrupts, SqliteInterrupts])
def test_every_backend_has_the_methods_of_the_port(backend: type) -> None:
    """With the same parameters, in the same order."""
    assert differences(Interrupts, backend) == []
