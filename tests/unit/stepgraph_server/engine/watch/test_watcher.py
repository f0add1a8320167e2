"""Watches as the API has them."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from stepgraph.v1 import run_service_pb2
from stepgraph_server.core.errors import Quarantined, Refused
from stepgraph_server.core.instants import MILLISECOND
from stepgraph_server.engine.watch.runs import ResumePoint
from stepgraph_server.engine.watch.watcher import Watcher
from stepgraph_server.storage.runs import RunQuery
from tests.contracts.storing import append, creation, key
from tests.unit.stepgraph_server.engine.watch.watching import Watched, delta, last

WATCH = {"summary": False, "history_only": False}


@pytest.fixture
def watcher(watched: Watched) -> Watcher:
    return Watcher(watched.hub, watched.store.runs, MILLISECOND)


def sequences(batches: object) -> list[int]:
    return [
        event.sequence
        for batch in batches
        for event in run_service_pb2.WatchBatch.FromString(batch).events
    ]


async def test_a_run_is_watched_to_its_end(watched: Watched, watcher: Watcher) -> None:
    """Batches as bytes, and an empty item for a keep-alive."""
    await watched.submit(append(1, 2))
    async with aclosing(watcher.watch_run("default", "r1", 1, **WATCH)) as items:
        assert sequences(await anext(items)) == [2]
        assert list(await anext(items)) == []
        await watched.submit(last(3))
        assert sequences(await anext(items)) == [3]
        with pytest.raises(StopAsyncIteration):
            await anext(items)
    assert watched.hub.watchers == 0


async def test_a_watch_that_is_given_up_leaves_the_hub(watched: Watched, watcher: Watcher) -> None:
    """Losing a watcher never touches the run."""
    await watched.submit(append(1))
    async with aclosing(watcher.watch_run("default", "r1", 0, **WATCH)) as items:
        await anext(items)
        assert watched.hub.watchers == 1
    assert watched.hub.watchers == 0


async def test_history_and_summary_are_passed_on(watched: Watched, watcher: Watcher) -> None:
    """Only what is there now, without progress."""
    await watched.submit(append(1))
    watched.show(delta("a"))
    watch = watcher.watch_run("default", "r1", 0, summary=True, history_only=True)
    assert [sequences(batches) async for batches in watch] == [[1]]


async def test_a_run_that_does_not_exist_is_refused(watcher: Watcher) -> None:
    """Before anything is given."""
    with pytest.raises(Refused) as caught:
        await anext(watcher.watch_run("default", "r1", 0, **WATCH))
    assert caught.value.reason == "RUN_NOT_FOUND"


async def test_a_sequence_beyond_the_end_is_refused(watched: Watched, watcher: Watcher) -> None:
    """It says where the end is."""
    await watched.submit(append(1, 2))
    with pytest.raises(Refused) as caught:
        await anext(watcher.watch_run("default", "r1", 3, **WATCH))
    assert caught.value.reason == "SEQUENCE_OUT_OF_RANGE"
    assert caught.value.metadata == {
        "run_id": "r1",
        "last_sequence": "2",
        "after_sequence": "3",
    }


async def test_a_quarantined_run_gives_what_can_be_read_first(
    watched: Watched, watcher: Watcher
) -> None:
    """Then it says so."""
    await watched.submit(append(1, 2))
    await watched.store.runs.set_quarantined(key())
    items = watcher.watch_run("default", "r1", 0, **WATCH)
    assert sequences(await anext(items)) == [1, 2]
    with pytest.raises(Quarantined) as caught:
        await anext(items)
    assert (caught.value.run_id, caught.value.last_sequence) == ("r1", 2)


async def test_a_run_that_is_deleted_meanwhile_is_not_found(
    watched: Watched, watcher: Watcher
) -> None:
    """Nothing more can be said of it."""
    await watched.submit(append(1))
    items = watcher.watch_run("default", "r1", 0, **WATCH)
    await anext(items)
    del watched.store.runs.by_key[key()]
    watched.hub.end_run(key())
    with pytest.raises(Refused) as caught:
        await anext(items)
    assert caught.value.reason == "RUN_NOT_FOUND"


async def test_watches_end_with_the_server(watched: Watched, watcher: Watcher) -> None:
    """The watcher hears why, and when to come back."""
    await watched.submit(append(1))
    one = watcher.watch_run("default", "r1", 0, **WATCH)
    many = watcher.watch_runs("default", RunQuery(), None, summary=False)
    await anext(one)
    await anext(many)
    watched.hub.close()
    for items in (one, many):
        with pytest.raises(Refused) as caught:
            await anext(items)
        assert caught.value.reason == "SHUTTING_DOWN"
        assert caught.value.retry_after is not None


async def test_many_runs_are_watched_with_a_point_to_resume_at(
    watched: Watched, watcher: Watcher
) -> None:
    """Of those that match; a later watch goes on there. The point is there before anything happens."""
    made = creation("a", labels={"env": "prod"})
    query = RunQuery(labels={"env": "prod"})
    await watched.submit(append(1, key=key("a"), creation=made), append(1, key=key("b")))
    async with aclosing(watcher.watch_runs("default", query, 0, summary=False)) as items:
        assert await anext(items) == ((), 0)
        batches, point = await anext(items)
        assert sequences(batches) == [1]
    await watched.submit(append(2, key=key("a")), append(2, key=key("b")))
    async with aclosing(watcher.watch_runs("default", query, point, summary=False)) as items:
        assert await anext(items) == ((), point)
        batches, _ = await anext(items)
        assert sequences(batches) == [2]
        batches, _ = await anext(items)
        assert list(batches) == []


async def test_a_point_beyond_the_end_of_the_journal_is_refused(
    watched: Watched, watcher: Watcher
) -> None:
    """It would wait without a word, and then miss what comes up to that point."""
    await watched.submit(append(1))
    head = watched.hub.head_position()
    for beyond in (ResumePoint((head + 1) << 20), ResumePoint(2**62)):
        watch = watcher.watch_runs("default", RunQuery(), beyond, summary=False)
        with pytest.raises(Refused) as caught:
            await anext(watch)
        assert caught.value.reason == "SEQUENCE_OUT_OF_RANGE"
    at_the_end = watcher.watch_runs("default", RunQuery(), ResumePoint(head << 20), summary=False)
    async with aclosing(at_the_end) as items:
        assert list((await anext(items))[0]) == []
    assert watched.hub.watchers == 0
