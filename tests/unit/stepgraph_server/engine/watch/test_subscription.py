"""What all watches have in common: transient events, order, waiting, ending."""

from __future__ import annotations

import asyncio

import pytest

from stepgraph_server.engine.watch import buffer as buffer_module
from stepgraph_server.engine.watch import subscription as subscription_module
from stepgraph_server.engine.watch.subscription import END, KEEPALIVE, WatchItem
from stepgraph_server.storage.errors import JournalUnavailable
from tests.contracts.storing import append, key
from tests.unit.stepgraph_server.engine.watch.watching import (
    FULL,
    SUMMARY,
    Watched,
    delta,
    last,
    parsed,
    sequences,
    shown,
)


async def test_progress_is_given_in_order_after_the_events(watched: Watched) -> None:
    """In one item the events come first; what happened after progress comes in the next item."""
    await watched.submit(append(1))
    with watched.hub.subscribe_run(key(), 1, FULL) as subscription:
        assert await subscription.next(0.001) is KEEPALIVE
        await watched.submit(append(2))
        watched.show(delta("a"), delta("b"))
        await watched.submit(append(3))
        watched.show(delta("c"))
        items = parsed(await subscription.next(1))
        assert [
            ([event.sequence for event in item.events], len(item.transient_events))
            for item in items
        ] == [([2], 2), ([3], 1)]


async def test_a_summary_has_no_progress(watched: Watched) -> None:
    """It is for those who count, not for those who read along."""
    await watched.submit(append(1))
    watched.show(delta("a"))
    with watched.hub.subscribe_run(key(), 0, SUMMARY) as subscription:
        assert sequences(await subscription.next(1)) == [1]
        assert await subscription.next(0.001) is KEEPALIVE
        watched.show(delta("b"))
        assert await subscription.next(0.001) is KEEPALIVE


async def test_a_late_watcher_gets_the_text_so_far_once(watched: Watched) -> None:
    """Deltas that come while it reads the history are in that text, and not given again."""
    await watched.submit(append(1))
    watched.show(delta("a"), delta("b"))
    with watched.hub.subscribe_run(key(), 0, FULL) as subscription:
        assert sequences(await subscription.next(1)) == [1]
        watched.show(delta("c"))
        assert shown(await subscription.next(1)) == [("text_so_far", "abc")]
        watched.show(delta("d"))
        assert shown(await subscription.next(1)) == [("progress", "d")]


async def test_too_much_progress_is_dropped_and_that_is_said_once(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Per attempt; events are never dropped."""
    monkeypatch.setattr(buffer_module, "MAX_TRANSIENT_BYTES", 1_000)
    await watched.submit(append(1))
    with watched.hub.subscribe_run(key(), 1, FULL) as subscription:
        assert await subscription.next(0.001) is KEEPALIVE
        for number in range(50):
            watched.show(delta(f"{number}"), delta("z", task="2/n/t0"))
        await watched.submit(append(2))
        ready = await subscription.next(1)
        kinds = [kind for kind, _ in shown(ready)]
        assert kinds.count("progress_dropped") == 2
        assert 0 < kinds.count("progress") < 10
        assert sequences(ready) == [2]
        watched.show(delta("on"))
        assert shown(await subscription.next(1)) == [("progress", "on")]


async def test_a_discarded_attempt_is_told_before_the_next_one(watched: Watched) -> None:
    """Only if it had shown something."""
    await watched.submit(append(1))
    with watched.hub.subscribe_run(key(), 1, FULL) as subscription:
        assert await subscription.next(0.001) is KEEPALIVE
        watched.hub.task_ended(key(), "1/n/t0", 1, discarded=True)
        watched.show(delta("a", attempt=2))
        watched.hub.task_ended(key(), "1/n/t0", 2, discarded=True)
        watched.show(delta("b", attempt=3))
        watched.hub.task_ended(key(), "1/n/t0", 3, discarded=False)
        assert shown(await subscription.next(1)) == [
            ("progress", "a"),
            ("attempt_discarded", "2"),
            ("progress", "b"),
        ]


async def test_a_watcher_that_was_behind_hears_what_it_missed(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not count any more, of what something is missing, and all the text of what goes on."""
    monkeypatch.setattr(buffer_module, "MAX_BUFFER_BYTES", 1_500)
    await watched.submit(append(1))
    with watched.hub.subscribe_run(key(), 1, FULL) as subscription:
        assert await subscription.next(0.001) is KEEPALIVE
        watched.show(delta("a"), delta("x", task="2/n/t0"))
        for number in range(2, 12):
            await watched.submit(append(number))
        # It is behind by now.
        watched.hub.task_ended(key(), "1/n/t0", 1, discarded=True)
        watched.show(delta("b", attempt=2), delta("y", task="2/n/t0"))
        assert sequences(await subscription.next(1)) == list(range(2, 12))
        assert shown(await subscription.next(1)) == [
            ("attempt_discarded", "1"),
            ("progress_dropped", "1"),
            ("progress_dropped", "2"),
            ("text_so_far", "xy"),
            ("text_so_far", "b"),
        ]


async def test_only_so_much_is_remembered_for_a_watcher_that_is_behind(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watcher never costs unbounded memory."""
    monkeypatch.setattr(buffer_module, "MAX_BUFFER_BYTES", 500)
    monkeypatch.setattr(subscription_module, "MAX_REMEMBERED", 3)
    await watched.submit(append(1))
    with watched.hub.subscribe_run(key(), 1, FULL) as subscription:
        assert await subscription.next(0.001) is KEEPALIVE
        for number in range(2, 12):
            await watched.submit(append(number))
        for number in range(10):
            watched.show(delta("x", task=f"1/n/t{number}"))
        for number in range(10):
            watched.hub.task_ended(key(), f"1/n/t{number}", 1, discarded=True)
        for number in range(10):
            watched.show(delta("x", task=f"2/n/t{number}"))
        assert len(subscription._discards) == 3
        assert len(subscription._dropped) <= 3


async def test_a_keepalive_comes_when_the_time_is_up(watched: Watched) -> None:
    """And again, for as long as nothing happens."""
    await watched.submit(append(1))
    loop = asyncio.get_running_loop()
    with watched.hub.subscribe_run(key(), 1, FULL) as subscription:
        for _ in range(2):
            begun = loop.time()
            assert await subscription.next(0.02) is KEEPALIVE
            assert loop.time() - begun >= 0.019


async def test_a_cancelled_wait_loses_nothing(watched: Watched) -> None:
    """The next one takes what came."""
    await watched.submit(append(1))
    with watched.hub.subscribe_run(key(), 1, FULL) as subscription:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await subscription.next(None)
        await watched.submit(append(2))
        assert sequences(await subscription.next(1)) == [2]


async def test_a_journal_that_can_not_be_read_is_asked_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error reaches the watcher, and the next call goes on without a gap."""
    await watched.submit(append(1, 2))
    with watched.hub.subscribe_run(key(), 0, FULL) as subscription:

        async def broken(*arguments: object) -> None:
            raise JournalUnavailable("x", "y", "z")

        with monkeypatch.context() as patch:
            patch.setattr(watched.store.journal, "read", broken)
            with pytest.raises(JournalUnavailable):
                await subscription.next(1)
        await watched.submit(last(3))
        assert sequences(await subscription.next(1)) == [1, 2, 3]
        assert await subscription.next(1) is END


async def test_ending_now_leaves_the_rest(watched: Watched) -> None:
    """The server shuts down; a watcher goes on elsewhere from its cursor."""
    await watched.submit(append(1))
    with watched.hub.subscribe_run(key(), 1, FULL) as subscription:
        assert await subscription.next(0.001) is KEEPALIVE
        await watched.submit(append(2))
        subscription.end_now()
        assert await subscription.next(1) is END


def test_an_item_is_a_watch_batch() -> None:
    """Run id, events, transient events."""
    (batch,) = parsed([WatchItem("run", [b"\x12\x02\x08\x05"], [b"\x1a\x03\x0a\x01t"])])
    assert batch.run_id == "run"
    assert batch.events[0].sequence == 5
    assert batch.transient_events[0].task_id == "t"
