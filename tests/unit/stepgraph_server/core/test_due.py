"""Times at which something is looked at: earliest first, each key once, what is not live is dropped."""

from __future__ import annotations

from stepgraph_server.core.due import DueTimes
from stepgraph_server.core.instants import Instant


def due(*entries: tuple[int, str]) -> DueTimes:
    times = DueTimes()
    for at, key in entries:
        times.arm(Instant(at), key)
    return times


def test_the_earliest_live_key_is_next_and_others_are_dropped() -> None:
    times = due((3, "c"), (1, "a"), (2, "b"))
    assert times.next(lambda key: key != "a") == 2
    assert len(times) == 2


def test_without_a_live_key_nothing_is_next() -> None:
    assert due((1, "a")).next(lambda _: False) is None
    assert due().next(lambda _: True) is None


def test_what_has_come_is_taken_once_and_in_order() -> None:
    times = due((2, "b"), (1, "a"), (2, "a"), (3, "a"))
    assert list(times.take(Instant(2))) == ["a", "b"]
    assert times.next(lambda _: True) == 3
