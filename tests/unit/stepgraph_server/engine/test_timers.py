"""When runs are looked at."""

from __future__ import annotations

import asyncio

from stepgraph_server.core.instants import Instant
from stepgraph_server.engine import timers as timers_module
from stepgraph_server.engine.timers import MAX_PER_TURN, Timers
from stepgraph_server.storage.records import RunKey
from tests.support.engine_time import START, LoopClock, in_virtual_time, turns


def at(seconds: float) -> Instant:
    return Instant(START + round(seconds * 1_000_000))


def key(name: object) -> RunKey:
    return RunKey("default", str(name))


class Looks:
    """Timers, and what they have looked at, by when."""

    def __init__(self) -> None:
        self.clock = LoopClock()
        self.seen: list[tuple[str, float]] = []
        self.timers = Timers(self.clock, self.look)

    def look(self, run: RunKey) -> None:
        self.seen.append((run.run_id, asyncio.get_running_loop().time()))


@in_virtual_time
async def test_each_run_is_looked_at_once_at_its_earliest_time():
    it = Looks()
    it.timers.arm(key("a"), at(5))
    it.timers.arm(key("b"), at(3))
    it.timers.arm(key("a"), at(2))
    it.timers.arm(key("a"), at(9))
    assert len(it.timers) == 2
    await asyncio.sleep(20)
    assert it.seen == [("a", 2), ("b", 3)]
    assert len(it.timers) == 0


@in_virtual_time
async def test_what_is_due_already_is_looked_at_at_once_but_not_inside_the_call():
    it = Looks()
    it.timers.arm(key("a"), at(-5))
    assert not it.seen
    await turns()
    assert it.seen == [("a", 0)]


@in_virtual_time
async def test_a_run_that_was_disarmed_is_not_looked_at():
    it = Looks()
    it.timers.arm(key("a"), at(1))
    it.timers.arm(key("b"), at(2))
    it.timers.disarm(key("a"))
    it.timers.disarm(key("never armed"))
    it.timers.arm(key("b"), at(1))
    await asyncio.sleep(5)
    assert it.seen == [("b", 1)]


@in_virtual_time
async def test_a_run_may_be_armed_again_while_it_is_looked_at():
    it = Looks()

    def look_again(run):
        it.look(run)
        if len(it.seen) < 3:
            it.timers.arm(run, Instant(it.clock.now() + 1_000_000))

    it.timers = Timers(it.clock, look_again)
    it.timers.arm(key("a"), at(1))
    await asyncio.sleep(10)
    assert it.seen == [("a", 1), ("a", 2), ("a", 3)]


@in_virtual_time
async def test_many_runs_that_are_due_at_once_leave_others_their_turn():
    it = Looks()
    for number in range(MAX_PER_TURN + 5):
        it.timers.arm(key(number), at(1))
    seen_between: list[int] = []
    loop = asyncio.get_running_loop()
    loop.call_at(1, lambda: loop.call_soon(lambda: seen_between.append(len(it.seen))))
    await asyncio.sleep(2)
    assert seen_between == [MAX_PER_TURN]
    assert len(it.seen) == MAX_PER_TURN + 5


@in_virtual_time
async def test_a_wall_clock_that_jumps_is_noticed_within_a_minute():
    it = Looks()
    it.timers.arm(key("a"), at(3_600))
    it.clock.ahead_us = 3_590_000_000
    await asyncio.sleep(timers_module.MAX_SLEEP_S + 1)
    assert [name for name, _ in it.seen] == ["a"]


@in_virtual_time
async def test_entries_of_runs_that_ended_do_not_pile_up():
    it = Looks()
    for number in range(20_000):
        it.timers.arm(key(number), at(86_400 + number))
        it.timers.disarm(key(number))
    assert len(it.timers._heap) <= timers_module.MAX_DEAD + 1
    it.timers.arm(key("a"), at(1))
    await asyncio.sleep(2)
    assert it.seen == [("a", 1)]


@in_virtual_time
async def test_after_it_is_closed_nobody_is_looked_at_or_taken():
    it = Looks()
    it.timers.close()
    it.timers = Timers(it.clock, it.look)
    it.timers.arm(key("a"), at(1))
    it.timers.close()
    it.timers.arm(key("b"), at(1))
    await asyncio.sleep(5)
    assert not it.seen
    assert len(it.timers) == 0


@in_virtual_time
async def test_a_clock_that_was_moved_makes_runs_due_at_once():
    """Without a word nobody would look before the time that was planned."""
    it = Looks()
    it.timers.arm(key("a"), at(3600))
    it.timers.arm(key("b"), at(7200))
    assert it.timers.next_look() == at(3600)
    it.clock.ahead_us += 3600 * 1_000_000
    it.timers.clock_moved()
    await turns()
    assert it.seen == [("a", 0)]
    assert it.timers.next_look() == at(7200)
    it.timers.close()
    it.timers.clock_moved()
    assert it.timers.next_look() is None
