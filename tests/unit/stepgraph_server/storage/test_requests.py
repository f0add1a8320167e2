"""The port of request ids; its contract is tested on every backend in tests/contracts."""

from __future__ import annotations

import pytest

from stepgraph_server.core.instants import HOUR
from stepgraph_server.storage.memory import MemoryRequests
from stepgraph_server.storage.requests import REQUEST_RETENTION, Requests
from stepgraph_server.storage.sqlite.requests import SqliteRequests
from tests.unit.stepgraph_server.storage.shapes import differences


@pytest.mark.parametrize("backend", [MemoryRequests, SqliteRequests])
def test_every_backend_has_the_methods_of_the_port(backend: type) -> None:
    """With the same parameters, in the same order."""
    assert differences(Requests, backend) == []


def test_records_are_kept_as_long_as_the_schema_promises() -> None:
    """At least a day."""
    assert REQUEST_RETENTION >= 24 * HOUR
