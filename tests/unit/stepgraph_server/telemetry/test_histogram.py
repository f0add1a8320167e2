"""Counters by upper bounds."""

from __future__ import annotations

from stepgraph_server.telemetry.histogram import SECONDS, Histogram


def test_observations_count_for_every_bound_that_they_are_not_above():
    it = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0):
        it.observe(seconds)
    assert list(it.cumulative()) == [("0.1", 2), ("1.0", 3), ("+Inf", 4)]
    assert it.total == 7.65


def test_bounds_rise():
    assert list(SECONDS) == sorted(set(SECONDS))
    assert [count for _, count in Histogram().cumulative()] == [0] * (len(SECONDS) + 1)
