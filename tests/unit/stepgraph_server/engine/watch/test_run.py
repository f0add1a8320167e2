"""Watching one run."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepgraph.v1 import event_pb2
from stepgraph_server.engine.watch import buffer as buffer_module
from stepgraph_server.engine.watch import run as run_module
from stepgraph_server.engine.watch.frames import MAX_RESPONSE_BYTES
from stepgraph_server.engine.watch.subscription import END, KEEPALIVE
from tests.contracts.storing import append, key
from tests.unit.stepgraph_server.engine.watch.watching import (
    FULL,
    SUMMARY,
    Watched,
    last,
    parsed,
    sequences,
    size_of,
)


async def test_a_watch_gives_history_then_goes_live_and_ends(watched: Watched) -> None:
    """All events once, and END behind the terminal one."""
    await watched.submit(append(1, 3))
    with watched.hub.subscribe_run(key(), 0, FULL) as subscription:
        assert sequences(await subscription.next(1)) == [1, 2, 3]
        assert await subscription.next(0.01) is KEEPALIVE
        await watched.submit(append(4), append(5, 6))
        assert sequences(await subscription.next(1)) == [4, 5, 6]
        await watched.submit(last(7))
        assert sequences(await subscription.next(1)) == [7]
        assert await subscription.next(1) is END
        assert await subscription.next(1) is END


async def test_a_batch_is_cut_where_the_watcher_begins(watched: Watched) -> None:
    """From the journal and live alike."""
    await watched.submit(append(1, 5))
    with watched.hub.subscribe_run(key(), 2, FULL) as subscription:
        assert sequences(await subscription.next(1)) == [3, 4, 5]
    with watched.hub.subscribe_run(key(), 7, FULL) as ahead:
        assert await ahead.next(0.01) is KEEPALIVE
        await watched.submit(append(6, 9))
        assert sequences(await ahead.next(1)) == [8, 9]


async def test_a_watcher_that_waits_is_woken(watched: Watched) -> None:
    """By the commit, not by a clock."""
    await watched.submit(append(1))
    with watched.hub.subscribe_run(key(), 1, FULL) as subscription:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(subscription.next(None))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not waiting.done()
            await watched.submit(append(2))
        assert sequences(waiting.result()) == [2]


async def test_a_run_that_has_ended_is_given_and_ends(watched: Watched) -> None:
    """Also with nothing left to give."""
    await watched.submit(append(1), last(2))
    for after, expected in ((0, [1, 2]), (1, [2])):
        with watched.hub.subscribe_run(key(), after, FULL) as subscription:
            assert sequences(await subscription.next(1)) == expected
            assert await subscription.next(1) is END
    with watched.hub.subscribe_run(key(), 2, FULL) as subscription:
        assert await subscription.next(1) is END


async def test_history_only_ends_at_the_last_event_of_now(watched: Watched) -> None:
    """What comes later is not given, and nothing is buffered."""
    await watched.submit(append(1, 2))
    with watched.hub.subscribe_run(key(), 0, FULL, history_only=True) as subscription:
        assert watched.hub.watchers == 0
        assert sequences(await subscription.next(1)) == [1, 2]
        await watched.submit(append(3))
        assert await subscription.next(1) is END


async def test_history_only_of_nothing_ends(watched: Watched) -> None:
    """A watcher that has everything, and a run that is gone."""
    await watched.submit(append(1, 2))
    for run, after in ((key(), 2), (key("gone"), 0)):
        with watched.hub.subscribe_run(run, after, FULL, history_only=True) as subscription:
            assert await subscription.next(1) is END


async def test_a_slow_watcher_is_fed_from_the_journal(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its buffer is bounded, and nothing is lost."""
    monkeypatch.setattr(buffer_module, "MAX_BUFFER_BYTES", 2_000)
    monkeypatch.setattr(run_module, "READ_BYTES", 500)
    await watched.submit(append(1))
    with watched.hub.subscribe_run(key(), 0, FULL) as subscription:
        assert sequences(await subscription.next(1)) == [1]
        assert await subscription.next(0.01) is KEEPALIVE
        for number in range(2, 400):
            await watched.submit(append(number))
        assert len(subscription._buffer) < 20
        found: list[int] = []
        while len(found) < 398:
            found += sequences(await subscription.next(1))
        assert found == list(range(2, 400))
        # It is live again.
        assert await subscription.next(0.01) is KEEPALIVE
        await watched.submit(last(400))
        assert sequences(await subscription.next(1)) == [400]
        assert await subscription.next(1) is END


async def test_a_response_stays_below_its_limit(watched: Watched) -> None:
    """Batches are spread over responses, and a batch that is too large is cut between events."""
    large = [event_pb2.RunEvent(sequence=number) for number in range(1, 11)]
    for event in large:
        event.run_paused.reason = "x" * 1_000_000
    batch = event_pb2.EventBatch(events=large).SerializeToString()
    await watched.submit(append(1, 10, batch=batch))
    with watched.hub.subscribe_run(key(), 0, FULL) as subscription:
        found: list[int] = []
        responses = 0
        while len(found) < 10:
            ready = await subscription.next(1)
            assert size_of(ready) < MAX_RESPONSE_BYTES
            found += sequences(ready)
            responses += 1
        assert found == list(range(1, 11))
        assert responses == 5


async def test_an_event_that_is_larger_than_a_response_comes_alone(watched: Watched) -> None:
    """It can't be cut, and must not be lost."""
    huge = event_pb2.RunEvent(sequence=2)
    huge.run_paused.reason = "x" * (MAX_RESPONSE_BYTES + 1)
    events = [event_pb2.RunEvent(sequence=1), huge, event_pb2.RunEvent(sequence=3)]
    batch = event_pb2.EventBatch(events=events).SerializeToString()
    await watched.submit(append(1, 3, batch=batch))
    with watched.hub.subscribe_run(key(), 0, FULL) as subscription:
        assert [sequences(await subscription.next(1)) for _ in range(3)] == [[1], [2], [3]]


async def test_stored_bytes_are_sent_as_they_are(watched: Watched) -> None:
    """Also what a newer server wrote and this one can't read."""
    event = event_pb2.RunEvent(sequence=1).SerializeToString() + b"\xba\x3e\x03abc"
    batch = bytes([0x0A, len(event)]) + event
    await watched.submit(append(1, batch=batch))
    with watched.hub.subscribe_run(key(), 0, FULL) as subscription:
        ready = await subscription.next(1)
        assert isinstance(ready, list)
        assert ready[0].events == [bytes([0x12, len(event)]) + event]


async def test_watchers_share_the_bytes(watched: Watched) -> None:
    """They are made once per batch, however many watch."""
    await watched.submit(append(1))
    subscriptions = [watched.hub.subscribe_run(key(), 1, FULL) for _ in range(3)]
    for subscription in subscriptions:
        assert await subscription.next(0.001) is KEEPALIVE
    await watched.submit(append(2))
    taken = [await subscription.next(1) for subscription in subscriptions]
    fields = [ready[0].events[0] for ready in taken if isinstance(ready, list)]
    assert len(fields) == 3
    assert all(field is fields[0] for field in fields)


async def test_a_summary_has_no_payloads(watched: Watched) -> None:
    """Neither from the journal nor live."""
    paused = event_pb2.RunEvent(sequence=1)
    paused.signal_received.name = "go"
    paused.signal_received.payload.text = "secret"
    batch = event_pb2.EventBatch(events=[paused]).SerializeToString()
    await watched.submit(append(1, batch=batch))
    with watched.hub.subscribe_run(key(), 0, SUMMARY) as subscription:
        (item,) = parsed(await subscription.next(1))
        assert item.events[0].signal_received.name == "go"
        assert not item.events[0].signal_received.HasField("payload")
        paused.sequence = 2
        again = event_pb2.EventBatch(events=[paused]).SerializeToString()
        await watched.submit(append(2, batch=again))
        (item,) = parsed(await subscription.next(1))
        assert not item.events[0].signal_received.HasField("payload")


@pytest.mark.parametrize("is_live", [False, True])
async def test_a_watch_of_a_quarantined_run_ends(watched: Watched, is_live: bool) -> None:
    """After what can be read."""
    await watched.submit(append(1, 2))
    if not is_live:
        await watched.store.runs.set_quarantined(key())
    with watched.hub.subscribe_run(key(), 0, FULL) as subscription:
        assert sequences(await subscription.next(1)) == [1, 2]
        if is_live:
            assert await subscription.next(0.001) is KEEPALIVE
            await watched.submit(append(3))
            await watched.store.runs.set_quarantined(key())
            watched.hub.end_run(key())
            assert sequences(await subscription.next(1)) == [3]
        assert await subscription.next(1) is END


async def test_a_watch_of_a_run_that_ends_while_its_watcher_reads(watched: Watched) -> None:
    """The end is not asked of the journal: the run is told to end first."""
    await watched.submit(append(1, 2))
    with watched.hub.subscribe_run(key(), 0, FULL) as subscription:
        watched.hub.end_run(key())
        assert sequences(await subscription.next(1)) == [1, 2]
        assert await subscription.next(1) is END


async def test_it_can_be_iterated(watched: Watched) -> None:
    """As an asynchronous iterator, to the end."""
    await watched.submit(append(1), last(2))
    with watched.hub.subscribe_run(key(), 0, FULL) as subscription:
        found = [number async for ready in subscription for number in sequences(ready)]
    assert found == [1, 2]


async def test_a_closed_subscription_is_at_its_end(watched: Watched) -> None:
    """And nothing is kept for it."""
    await watched.submit(append(1))
    subscription = watched.hub.subscribe_run(key(), 0, FULL)
    assert watched.hub.watchers == 1
    subscription.close()
    subscription.close()
    assert watched.hub.watchers == 0
    assert await subscription.next(1) is END


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 6)),
        st.tuples(st.just("subscribe"), st.integers(0, 30)),
        st.tuples(st.just("take"), st.integers(0, 5)),
        st.tuples(st.just("turn"), st.integers(1, 3)),
    ),
    max_size=60,
)


@given(steps=STEPS, buffer=st.integers(250, 3_000), read=st.integers(1, 300))
def test_each_watcher_gets_the_whole_log_whatever_the_order(
    steps: list[tuple[str, int]], buffer: int, read: int
) -> None:
    """No gap and no duplicate, for appends, joins and slow takes in any order."""

    async def play() -> None:
        watched = Watched()
        await watched.start()
        await watched.submit(append(1))
        head = 1
        watchers: list[tuple[int, list[int], object]] = []
        for step, number in steps:
            if step == "append":
                # Not waited for: what is submitted may be shown any time later.
                watched.store.journal.submit(append(head + 1, head + number))
                head += number
            elif step == "subscribe":
                after = min(number, head)
                watchers.append((after, [], watched.hub.subscribe_run(key(), after, FULL)))
            elif step == "turn":
                for _ in range(number):
                    await asyncio.sleep(0)
            elif watchers:
                _, found, subscription = watchers[number % len(watchers)]
                ready = await subscription.next(0)
                found += sequences(ready) if isinstance(ready, list) else []
        watched.store.journal.submit(last(head + 1))
        for after, found, subscription in watchers:
            rest = [number async for ready in subscription for number in sequences(ready)]
            assert found + rest == list(range(after + 1, head + 2))
        await watched.store.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffer_module, "MAX_BUFFER_BYTES", buffer)
        patch.setattr(run_module, "READ_BYTES", read)
        asyncio.run(play())
