"""What a seat is when a session begins, and whom a selector admits."""

from __future__ import annotations

import hashlib

import pytest

from stepgraph_server.core.instants import Instant
from stepgraph_server.executors.seats import NO_ROOM, Seat, Wanted
from tests.support.hellos import TOKEN, hello, received
from tests.support.outlets import RecordingOutlet


def seat(**options):
    return Seat(received(hello(**options)), RecordingOutlet(), Instant(7))


def test_a_new_seat_takes_nothing_yet():
    new = seat(max_in_flight=3)
    assert (new.load, new.in_flight, new.max_in_flight) == (NO_ROOM, 0, 3)
    assert not new.is_open
    assert new.connect_time == 7


def test_its_instance_is_the_hash_of_the_token():
    assert seat().instance == hashlib.sha256(TOKEN).hexdigest()
    assert seat().executor_id == "worker-1"


@pytest.mark.parametrize(
    ("selector", "admits"),
    [
        ((), True),
        ((("a", "1"),), True),
        ((("a", "1"), ("b", "2")), True),
        ((("a", "2"),), False),
        ((("c", ""),), False),
        ((("a", "1"), ("c", "3")), False),
    ],
)
def test_a_selector_admits_whoever_bears_all_its_labels(selector, admits):
    assert seat(labels={"a": "1", "b": "2"}).bears(selector) is admits


def test_nothing_is_wanted_unless_said():
    assert list(Wanted().attempts) == list(Wanted().results) == []
