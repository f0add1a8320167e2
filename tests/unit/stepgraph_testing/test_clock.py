"""A clock that jumps, and who sleeps by it."""

from __future__ import annotations

import asyncio

from stepgraph_server.core.instants import HOUR, after
from stepgraph_testing.clock import BenchClock, micros


async def test_it_goes_forward_only():
    """A jump to a time that is over changes nothing."""
    clock = BenchClock()
    start = clock.now()
    clock.jump(after(start, HOUR))
    assert HOUR <= clock.now() - start < HOUR + micros("1m")
    later = clock.now()
    clock.jump(start)
    assert clock.now() >= later


async def test_sleepers_wake_in_their_order_when_their_time_has_come():
    """Nobody wakes before a jump has passed its time."""
    clock = BenchClock()
    woken = []

    async def sleep(how_long):
        await clock.sleep(how_long)
        woken.append(how_long)

    async with asyncio.TaskGroup() as group:
        for how_long in ("2h", "90m", "1h"):
            group.create_task(sleep(how_long))
        await asyncio.sleep(0)
        assert clock.sleeping == 3
        clock.jump(clock.next_due())
        await asyncio.sleep(0)
        assert woken == ["1h"]
        clock.jump(after(clock.now(), micros("1h")))
    assert woken == ["1h", "90m", "2h"]
    assert clock.next_due() is None


async def test_a_sleeper_that_is_cancelled_is_none():
    """It holds nothing up, and is not woken."""
    clock = BenchClock()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(clock.sleep("1h"))
        await asyncio.sleep(0)
        task.cancel()
    assert clock.sleeping == 0
    assert clock.next_due() is None
    clock.jump(after(clock.now(), HOUR))
