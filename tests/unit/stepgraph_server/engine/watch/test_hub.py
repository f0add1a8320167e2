"""The hub: who is shown what."""

from __future__ import annotations

import time

from stepgraph_server.engine.watch.subscription import END, KEEPALIVE
from tests.contracts.storing import append, batch, key
from tests.unit.stepgraph_server.engine.watch.watching import (
    FULL,
    Watched,
    delta,
    last,
    sequences,
    shown,
)


async def test_only_watchers_of_a_run_are_shown_it(watched: Watched) -> None:
    """And those who watch its namespace."""
    await watched.submit(append(1), append(1, key=key("r2")))
    one = watched.hub.subscribe_run(key(), 1, FULL)
    other = watched.hub.subscribe_run(key("r2"), 1, FULL)
    everyone = watched.hub.subscribe_runs("default", None, None, FULL)
    elsewhere = watched.hub.subscribe_runs("other", None, None, FULL)
    for subscription in (one, other, everyone, elsewhere):
        assert await subscription.next(0.001) is KEEPALIVE
    await watched.submit(append(2))
    watched.show(delta("a"))
    for subscription in (one, everyone):
        ready = await subscription.next(1)
        assert sequences(ready) == [2]
        assert shown(ready) == [("progress", "a")]
    for subscription in (other, elsewhere):
        assert await subscription.next(0.001) is KEEPALIVE


async def test_watchers_are_counted(watched: Watched) -> None:
    """Of runs and of namespaces; whoever closes is not counted any more, and leaves nothing."""
    hub = watched.hub
    subscriptions = [
        hub.subscribe_run(key(), 0, FULL),
        hub.subscribe_run(key(), 0, FULL),
        hub.subscribe_runs("default", None, None, FULL),
    ]
    assert hub.watchers == 3
    for subscription in subscriptions:
        subscription.close()
        subscription.close()
    assert hub.watchers == 0
    assert not hub._by_run
    assert not hub._by_namespace


async def test_the_texts_of_a_run_end_with_it(watched: Watched) -> None:
    """Nothing is kept of runs that are over, whether anybody watched or not."""
    await watched.submit(append(1))
    watched.show(delta("a"))
    assert watched.hub._texts.runs() == [key()]
    await watched.submit(last(2))
    assert watched.hub._texts.runs() == []


async def test_the_text_of_a_task_ends_with_it(watched: Watched) -> None:
    """A late watcher hears of live attempts only."""
    await watched.submit(append(1))
    watched.show(delta("a"), delta("b", task="2/n/t0"))
    watched.hub.task_ended(key(), "1/n/t0", 1, discarded=False)
    with watched.hub.subscribe_run(key(), 1, FULL) as subscription:
        assert shown(await subscription.next(1)) == [("text_so_far", "b")]


async def test_a_run_that_does_not_go_on_ends_its_watches(watched: Watched) -> None:
    """And no others."""
    await watched.submit(append(1), append(1, key=key("r2")))
    one = watched.hub.subscribe_run(key(), 1, FULL)
    other = watched.hub.subscribe_run(key("r2"), 1, FULL)
    watched.show(delta("a"))
    for subscription in (one, other):
        await subscription.next(0.001)
    watched.hub.end_run(key())
    assert await one.next(1) is END
    assert await other.next(0.001) is KEEPALIVE
    assert watched.hub._texts.runs() == []


async def test_closing_ends_all_watches(watched: Watched) -> None:
    """At once, with what they have given."""
    await watched.submit(append(1))
    subscriptions = [
        watched.hub.subscribe_run(key(), 0, FULL),
        watched.hub.subscribe_runs("default", None, None, FULL),
    ]
    assert not watched.hub.is_closed
    watched.hub.close()
    assert watched.hub.is_closed
    for subscription in subscriptions:
        assert await subscription.next(1) is END


async def test_a_watch_that_begins_after_closing_ends(watched: Watched) -> None:
    """A call that was let in just before."""
    await watched.submit(append(1))
    watched.hub.close()
    assert await watched.hub.subscribe_run(key(), 0, FULL).next(1) is END
    assert await watched.hub.subscribe_runs("default", None, None, FULL).next(1) is END


async def test_showing_to_many_watchers_costs_little(watched: Watched) -> None:
    """A watcher never slows a run: an append to a buffer and one wake, even for those who never read."""
    await watched.submit(append(1))
    subscriptions = [watched.hub.subscribe_run(key(), 1, FULL) for _ in range(64)]
    for subscription in subscriptions:
        assert await subscription.next(0) is KEEPALIVE
    event = batch(2, 5)
    begun = time.perf_counter()
    for number in range(100):
        watched.hub.publish(key(), event, number, number, number, terminal=False)
    each = (time.perf_counter() - begun) / 100 / 64
    # Less than a microsecond on a quiet machine; this only tells linear from worse.
    assert each < 50e-6
