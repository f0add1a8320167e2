"""The port of the journal; its contract is tested on every backend in tests/contracts."""

from __future__ import annotations

import pytest

from stepgraph_server.storage.journal import (
    MAX_WAITING_APPENDS,
    MAX_WAITING_BYTES,
    Backlog,
    Journal,
)
from stepgraph_server.storage.memory import MemoryJournal
from stepgraph_server.storage.sqlite.journal import SqliteJournal
from tests.unit.stepgraph_server.storage.shapes import differences


@pytest.mark.parametrize("backend", [MemoryJournal, SqliteJournal])
def test_every_backend_has_the_methods_of_the_port(backend: type) -> None:
    """With the same parameters, in the same order."""
    assert differences(Journal, backend) == []


@pytest.mark.parametrize(
    ("backlog", "is_full"),
    [
        (Backlog(0, 0), False),
        (Backlog(MAX_WAITING_APPENDS - 1, MAX_WAITING_BYTES - 1), False),
        (Backlog(MAX_WAITING_APPENDS, 0), True),
        (Backlog(0, MAX_WAITING_BYTES), True),
    ],
)
def test_a_backlog_is_full_by_number_or_by_size(backlog: Backlog, is_full: bool) -> None:
    """Either bounds what waits."""
    assert backlog.is_full is is_full
