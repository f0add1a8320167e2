"""Watching many runs."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepgraph.v1 import event_pb2
from stepgraph_server.engine.watch import buffer as buffer_module
from stepgraph_server.engine.watch import runs as runs_module
from stepgraph_server.engine.watch.runs import ResumePoint, RunsSubscription
from stepgraph_server.engine.watch.subscription import END, KEEPALIVE
from stepgraph_server.storage.records import Prefix
from stepgraph_server.storage.runs import RunQuery
from tests.contracts.storing import append, creation, key
from tests.unit.stepgraph_server.engine.watch.watching import (
    FULL,
    SUMMARY,
    Watched,
    delta,
    parsed,
    shown,
)

START = ResumePoint(0)
PROD = RunQuery(labels={"env": "prod"})


def events(ready: object) -> list[tuple[str, int]]:
    return [(batch.run_id, event.sequence) for batch in parsed(ready) for event in batch.events]


def labelled(run_id: str, env: str, **fields: object) -> object:
    made = creation(run_id, labels={"env": env})
    return append(1, key=key(run_id), creation=made, **fields)


async def test_a_watch_from_now_gives_what_comes(watched: Watched) -> None:
    """Of all runs of its namespace, in the order of commits."""
    await watched.submit(append(1), append(1, key=key("r2")))
    with watched.hub.subscribe_runs("default", None, None, FULL) as subscription:
        assert await subscription.next(0.001) is KEEPALIVE
        await watched.submit(append(2), append(1, key=key("x", "other")), append(2, key=key("r2")))
        assert events(await subscription.next(1)) == [("r1", 2), ("r2", 2)]
        await watched.submit(append(3), append(4))
        (batch,) = parsed(await subscription.next(1))
        assert [event.sequence for event in batch.events] == [3, 4]


async def test_a_watch_goes_on_at_its_resume_point(watched: Watched) -> None:
    """From the journal, then live: no gap and no duplicate."""
    with watched.hub.subscribe_runs("default", None, None, FULL) as first:
        await watched.submit(append(1), append(1, key=key("r2")))
        assert len(events(await first.next(1))) == 2
        point = first.resume_point
    await watched.submit(append(2), append(3))
    with watched.hub.subscribe_runs("default", None, point, FULL) as second:
        assert events(await second.next(1)) == [("r1", 2), ("r1", 3)]
        assert await second.next(0.001) is KEEPALIVE
        await watched.submit(append(4))
        assert events(await second.next(1)) == [("r1", 4)]


async def test_a_fork_is_given_from_its_first_event(watched: Watched) -> None:
    """What it begins with is copied in the journal and shown to nobody: whoever is live goes back for it."""
    with watched.hub.subscribe_runs("default", None, None, FULL) as subscription:
        await watched.submit(append(1), append(2, 3))
        assert len(events(await subscription.next(1))) == 3
        await watched.submit(
            append(
                4,
                key=key("f1"),
                creation=creation("f1", origin=b"o"),
                prefix=Prefix(source=key(), last_sequence=3),
            )
        )
        assert events(await subscription.next(1)) == [("f1", number) for number in (1, 2, 3, 4)]
        await watched.submit(append(5, key=key("f1")))
        assert events(await subscription.next(1)) == [("f1", 5)]


async def test_a_resume_point_may_lie_within_a_batch(watched: Watched) -> None:
    """A batch that was cut goes on where it was cut."""
    large = [event_pb2.RunEvent(sequence=number) for number in range(1, 8)]
    for event in large:
        event.run_paused.reason = "x" * 1_000_000
    batch = event_pb2.EventBatch(events=large).SerializeToString()
    await watched.submit(append(1, 7, batch=batch), append(8))
    found: list[tuple[str, int]] = []
    point = START
    while len(found) < 8:
        with watched.hub.subscribe_runs("default", None, point, FULL) as subscription:
            found += events(await subscription.next(1))
            point = subscription.resume_point
    assert [sequence for _, sequence in found] == list(range(1, 9))


@pytest.mark.parametrize("after", [None, START])
async def test_only_runs_that_match_are_given(watched: Watched, after: ResumePoint | None) -> None:
    """Their rows are read once each, when the first of their batches comes."""
    with watched.hub.subscribe_runs("default", PROD, after, FULL) as subscription:
        await watched.submit(labelled("a", "prod"), labelled("b", "test"), labelled("c", "prod"))
        assert events(await subscription.next(1)) == [("a", 1)]
        assert events(await subscription.next(1)) == [("c", 1)]
        await watched.submit(*(append(2, key=key(run_id)) for run_id in "abc"))
        assert events(await subscription.next(1)) == [("a", 2), ("c", 2)]


async def test_what_does_not_match_moves_the_resume_point(watched: Watched) -> None:
    """Or a later watch would read all that this one has seen pass."""
    with watched.hub.subscribe_runs("default", PROD, None, FULL) as subscription:
        before = subscription.resume_point
        await watched.submit(labelled("b", "test"))
        assert await subscription.next(0.001) is KEEPALIVE
        assert subscription.resume_point > before
        between = subscription.resume_point
        await watched.submit(append(2, key=key("b")))
        assert subscription.resume_point > between


async def test_a_run_that_is_gone_does_not_match(watched: Watched) -> None:
    """Nothing can be known of it any more."""
    with watched.hub.subscribe_runs("default", PROD, None, FULL) as subscription:
        batch = event_pb2.EventBatch(events=[event_pb2.RunEvent(sequence=1)]).SerializeToString()
        watched.hub.publish(key("gone"), batch, 1, 1, 1, terminal=False)
        assert await subscription.next(0.001) is KEEPALIVE


async def test_a_long_way_through_others_gives_keepalives(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watcher hears that its watch lives, although nothing is for it."""
    monkeypatch.setattr(runs_module, "READ_BYTES", 1)
    await watched.submit(labelled("b", "test"))
    await watched.submit(*(append(number, key=key("b")) for number in range(2, 50)))
    await watched.submit(labelled("a", "prod"))
    with watched.hub.subscribe_runs("default", PROD, START, FULL) as subscription:
        assert await subscription.next(0) is KEEPALIVE
        ready = KEEPALIVE
        while ready is KEEPALIVE:
            ready = await subscription.next(0)
        assert events(ready) == [("a", 1)]


async def test_only_so_many_verdicts_are_remembered(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then rows are read again."""
    monkeypatch.setattr(runs_module, "MAX_VERDICTS", 2)
    with watched.hub.subscribe_runs("default", PROD, START, FULL) as subscription:
        await watched.submit(*(labelled(f"r{number}", "prod") for number in range(5)))
        found: list[tuple[str, int]] = []
        while len(found) < 5:
            found += events(await subscription.next(1))
            assert len(subscription._verdicts) <= 2


async def test_progress_is_given_of_runs_that_are_known_to_match(watched: Watched) -> None:
    """Of others nothing; and none in a summary."""
    await watched.submit(labelled("a", "prod"), labelled("b", "test"))
    full = watched.hub.subscribe_runs("default", PROD, START, FULL)
    summary = watched.hub.subscribe_runs("default", None, None, SUMMARY)
    assert events(await full.next(1)) == [("a", 1)]
    assert await full.next(0.001) is KEEPALIVE
    watched.show(delta("x"), run=key("a"))
    watched.show(delta("y"), run=key("b"))
    watched.show(delta("z"), run=key("unknown"))
    assert shown(await full.next(1)) == [("progress", "x")]
    assert await summary.next(0.001) is KEEPALIVE
    full.close()
    summary.close()


async def test_a_late_watcher_gets_the_texts_of_runs_that_it_knows(watched: Watched) -> None:
    """When it has caught up, or at once if it watches from now."""
    await watched.submit(labelled("a", "prod"), labelled("b", "test"))
    watched.show(delta("x"), delta("y"), run=key("a"))
    watched.show(delta("z"), run=key("b"))
    with watched.hub.subscribe_runs("default", None, None, FULL) as everything:
        assert shown(await everything.next(1)) == [("text_so_far", "xy"), ("text_so_far", "z")]
    with watched.hub.subscribe_runs("default", PROD, START, FULL) as some:
        assert events(await some.next(1)) == [("a", 1)]
        assert shown(await some.next(1)) == [("text_so_far", "xy")]


async def test_it_ends_when_it_is_told_to(watched: Watched) -> None:
    """By itself it never does."""
    await watched.submit(append(1))
    with watched.hub.subscribe_runs("default", None, START, FULL) as subscription:
        subscription.end()
        assert events(await subscription.next(1)) == [("r1", 1)]
        assert await subscription.next(1) is END


RUNS = ("a", "b", "c")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 4)),
        st.tuples(st.just("subscribe"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("resume"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("take"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("turn"), st.integers(1, 3), st.just(0)),
    ),
    max_size=60,
)


class Play:
    """Some runs, and watchers that come and go, with what each has got."""

    def __init__(self) -> None:
        self.watched = Watched()
        self.heads = dict.fromkeys(RUNS, 1)
        self.watchers: list[tuple[RunQuery | None, list[tuple[str, int]], RunsSubscription]] = []

    def append(self, number: int, count: int) -> None:
        run_id = RUNS[number]
        first = self.heads[run_id] + 1
        self.heads[run_id] += count
        # Not waited for: what is submitted may be shown any time later.
        self.watched.store.journal.submit(append(first, self.heads[run_id], key=key(run_id)))

    def subscribe(self, query: RunQuery | None) -> None:
        subscription = self.watched.hub.subscribe_runs("default", query, START, FULL)
        self.watchers.append((query, [], subscription))

    async def take(self, place: int) -> None:
        _, found, subscription = self.watchers[place]
        ready = await subscription.next(0)
        found += events(ready) if isinstance(ready, list) else []

    def resume(self, place: int) -> None:
        query, found, subscription = self.watchers[place]
        subscription.close()
        point = subscription.resume_point
        again = self.watched.hub.subscribe_runs("default", query, point, FULL)
        self.watchers[place] = (query, found, again)

    async def step(self, kind: str, number: int, count: int) -> None:
        if kind == "append":
            self.append(number, count)
        elif kind == "subscribe":
            self.subscribe(PROD if number else None)
        elif kind == "turn":
            for _ in range(number):
                await asyncio.sleep(0)
        elif self.watchers and kind == "take":
            await self.take(number % len(self.watchers))
        elif self.watchers:
            self.resume(number % len(self.watchers))

    async def check(self) -> None:
        for query, found, subscription in self.watchers:
            while (ready := await subscription.next(0.001)) is not KEEPALIVE:
                found.extend(events(ready))
            for run_id, head in self.heads.items():
                matches = query is None or run_id != "b"
                got = [sequence for run, sequence in found if run == run_id]
                assert got == (list(range(1, head + 1)) if matches else [])


@given(steps=STEPS, buffer=st.integers(250, 3_000), read=st.integers(1, 300))
def test_each_watcher_gets_all_that_matches_whatever_the_order(
    steps: list[tuple[str, int, int]], buffer: int, read: int
) -> None:
    """No gap and no duplicate, for appends to several runs, joins, slow takes and resumed watches in any order."""

    async def play() -> None:
        game = Play()
        await game.watched.start()
        first = (labelled(run_id, "test" if run_id == "b" else "prod") for run_id in RUNS)
        await game.watched.submit(*first)
        for step in steps:
            await game.step(*step)
        await game.check()
        await game.watched.store.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffer_module, "MAX_BUFFER_BYTES", buffer)
        patch.setattr(runs_module, "READ_BYTES", read)
        asyncio.run(play())
