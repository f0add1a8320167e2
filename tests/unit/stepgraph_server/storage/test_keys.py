"""What appends are known by."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from stepgraph_server.storage import records
from stepgraph_server.storage.keys import RequestRecord, RunKey
from tests.contracts.storing import request


def test_runs_of_two_namespaces_are_two() -> None:
    """A key is both, and works as one in a dictionary."""
    assert len({RunKey("a", "r"): 1, RunKey("b", "r"): 2, RunKey("a", "r"): 3}) == 2


def test_they_are_taken_from_records() -> None:
    """The same classes, so that callers have one place to look."""
    assert records.RunKey is RunKey
    assert records.RequestRecord is RequestRecord


def test_a_record_of_a_request_does_not_change() -> None:
    """It is the first response, for whoever repeats the request."""
    with pytest.raises(FrozenInstanceError):
        request().response = b"other"
