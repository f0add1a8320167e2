"""The clock of the server."""

from __future__ import annotations

import time

from stepgraph_server.engine.clock import SystemClock


def test_it_tells_the_time_in_microseconds():
    before = time.time_ns() // 1_000
    assert before <= SystemClock().now() <= time.time_ns() // 1_000


def test_time_stands_still_while_the_machine_is_set_back(monkeypatch):
    clock = SystemClock()
    times = iter([5_000, 3_000, 9_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(times))
    assert [clock.now() for _ in range(3)] == [5, 5, 9]
