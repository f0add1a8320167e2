"""What storage says when something goes wrong."""

from __future__ import annotations

import pytest

from stepgraph_server.core.errors import StepgraphError
from stepgraph_server.storage import errors
from tests.contracts.storing import key, request


def test_all_have_one_root() -> None:
    """Whoever can't tell them apart catches StorageError."""
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.StorageError)
    assert issubclass(errors.StorageError, StepgraphError)
    assert issubclass(errors.StoreInUse, errors.StoreUnusable)
    assert issubclass(errors.StoreTooNew, errors.StoreUnusable)


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (errors.SequenceConflict(key(), 5, 2), ("default/r1", "5", "2")),
        (errors.RunExists(key()), ("default/r1",)),
        (errors.RequestIdReused(request()), ("q1", "StartRun")),
        (errors.AppendSkipped(key()), ("default/r1",)),
        (errors.AppendInvalid(key(), "no events"), ("default/r1", "no events")),
        (errors.JournalUnavailable("/p", "disk full", "Free it"), ("/p", "disk full", "Free it")),
        (errors.StoreUnusable("/p", "a folder", "Name a file"), ("/p", "a folder", "Name a file")),
        (errors.StoreInUse("/p", "/p.lock", 12), ("/p", "/p.lock", "process 12", "Stop")),
        (errors.StoreInUse("/p", "/p.lock", 0), ("another process",)),
        (errors.StoreTooNew("/p", 7, 3), ("/p", "7", "3", "backup")),
        (errors.ValueMismatch(what="size", expected="1", actual="2"), ("size", "1", "2")),
        (errors.ValueTooLarge(10, 12), ("10 bytes", "12")),
    ],
    ids=str,
)
def test_a_message_is_made_of_its_fields(error: Exception, parts: tuple[str, ...]) -> None:
    """What an operator or a caller needs to know stands in it."""
    for part in parts:
        assert part in str(error)
