"""Which appends may be stored."""

from __future__ import annotations

import pytest

from stepgraph_server.storage.admission import flaw_of, refusal
from stepgraph_server.storage.errors import RequestIdReused, SequenceConflict
from stepgraph_server.storage.records import RunProgress
from tests.contracts.storing import RUNNING, append, creation, request


@pytest.mark.parametrize(
    ("first", "last_sequence", "expected"),
    [(1, 0, None), (5, 4, None), (1, 4, "RunExists"), (4, 4, "SequenceConflict")],
)
def test_an_append_fits_behind_the_last_event(
    first: int, last_sequence: int, expected: str | None
) -> None:
    """And creates what does not exist."""
    error = refusal(append(first), last_sequence, None)
    assert (error and type(error).__name__) == expected


def test_a_conflict_says_where_the_run_ends() -> None:
    """So that the caller can see who is behind."""
    error = refusal(append(9), 4, None)
    assert isinstance(error, SequenceConflict)
    assert (error.first_sequence, error.last_sequence) == (9, 4)


def test_a_used_request_id_comes_before_everything_else() -> None:
    """Even before a flaw: nothing is stored, and the first response is the answer."""
    error = refusal(append(1, request=request()), 4, request(response=b"x"))
    assert isinstance(error, RequestIdReused)
    assert error.record.response == b"x"
    assert isinstance(refusal(append(3, 2), 0, request()), RequestIdReused)


@pytest.mark.parametrize(
    ("one", "part"),
    [
        (append(3, 2), "no events"),
        (append(0, 1, creation=None), "no events"),
        (append(1, creation=None), "created with its first event"),
        (append(2, creation=creation()), "created with its first event"),
        (append(2, progress=RunProgress(status=RUNNING, last_sequence=1)), "its progress says 1"),
    ],
)
def test_a_flaw_is_named(one: object, part: str) -> None:
    """It is a fault of the caller, who has to find it."""
    assert part in flaw_of(one)
    assert part in str(refusal(one, 0, None))


def test_what_keeps_the_contract_has_no_flaw() -> None:
    """A first append, and a later one."""
    assert flaw_of(append(1, 4)) == ""
    assert flaw_of(append(5)) == ""
