"""Watching a root with all runs below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph_server.engine.watch.runs import ResumePoint, point_at
from stepgraph_server.engine.watch.subscription import END, KEEPALIVE
from tests.contracts.storing import append, creation, key
from tests.unit.stepgraph_server.engine.watch.watching import FULL, Watched, last, parsed

if TYPE_CHECKING:
    from stepgraph_server.engine.watch.tree import TreeSubscription
    from stepgraph_server.storage.records import Append

START = ResumePoint(0)


def events(ready: object) -> list[tuple[str, int]]:
    return [(batch.run_id, event.sequence) for batch in parsed(ready) for event in batch.events]  # type: ignore[arg-type]  # a list


async def gathered(subscription: TreeSubscription, count: int) -> list[tuple[str, int]]:
    """Return so many events, in however many responses they come."""
    found: list[tuple[str, int]] = []
    while len(found) < count:
        found += events(await subscription.next(1))
    return found


def child(run_id: str = "kid", parent: str = "r1") -> Append:
    """Make the first append of a run below r1."""
    made = creation(run_id, parent_run_id=parent, root_run_id="r1")
    return append(1, key=key(run_id), creation=made)


async def everything(watched: Watched, after: ResumePoint = START, **fields: bool) -> list[object]:
    """Return all events of a watch that ends by itself."""
    found: list[object] = []
    with watched.hub.subscribe_tree(key(), after, FULL, **fields) as subscription:
        while (ready := await subscription.next(1)) is not END:
            assert ready is not KEEPALIVE
            found += events(ready)
    return found


async def test_it_has_all_runs_below_and_no_other_and_ends_with_its_root(watched: Watched) -> None:
    await watched.submit(append(1), append(1, key=key("other")))
    with watched.hub.subscribe_tree(key(), START, FULL) as subscription:
        assert events(await subscription.next(1)) == [("r1", 1)]
        await watched.submit(child(), child("grandkid", "kid"), append(2, key=key("other")))
        assert await gathered(subscription, 2) == [("kid", 1), ("grandkid", 1)]
        await watched.submit(last(2, key=key("grandkid")), last(2, key=key("kid")))
        assert await gathered(subscription, 2) == [("grandkid", 2), ("kid", 2)]
        assert await subscription.next(0.001) is KEEPALIVE
        await watched.submit(last(2))
        assert events(await subscription.next(1)) == [("r1", 2)]
        assert await subscription.next(1) is END


async def test_it_ends_where_its_root_ended_before(watched: Watched) -> None:
    await watched.submit(append(1), child(), last(2, key=key("kid")), last(2))
    await watched.submit(append(1, key=key("other")))
    assert await everything(watched) == [("r1", 1), ("kid", 1), ("kid", 2), ("r1", 2)]
    # Also for whoever has seen all of it.
    assert await everything(watched, point_at(watched.store.journal.head_position())) == []


async def test_history_ends_where_the_journal_did(watched: Watched) -> None:
    await watched.submit(append(1), child())
    with watched.hub.subscribe_tree(key(), START, FULL, history_only=True) as subscription:
        await watched.submit(append(2, key=key("kid")))
        assert await gathered(subscription, 2) == [("r1", 1), ("kid", 1)]
        assert await subscription.next(1) is END


async def test_it_goes_on_behind_what_was_given(watched: Watched) -> None:
    await watched.submit(append(1), child())
    with watched.hub.subscribe_tree(key(), START, FULL) as first:
        assert len(await gathered(first, 2)) == 2
        point = first.resume_point
    await watched.submit(append(2, key=key("kid")), last(2))
    assert await everything(watched, point) == [("kid", 2), ("r1", 2)]


async def test_it_begins_where_its_root_does(watched: Watched) -> None:
    """A journal may be long; what came before the root is not read."""
    await watched.submit(append(1, key=key("other")), append(1), child())
    point = await watched.hub.before(key())
    assert point == point_at(1)
    with watched.hub.subscribe_tree(key(), point, FULL) as subscription:
        assert len(await gathered(subscription, 2)) == 2


async def test_it_ends_with_a_root_that_goes_no_further(watched: Watched) -> None:
    await watched.submit(append(1), child())
    with watched.hub.subscribe_tree(key(), START, FULL) as subscription:
        assert len(await gathered(subscription, 2)) == 2
        watched.hub.end_run(key("kid"))
        assert await subscription.next(0.001) is KEEPALIVE
        watched.hub.end_run(key())
        assert await subscription.next(1) is END
    await watched.store.runs.set_quarantined(key())
    assert await everything(watched) == [("r1", 1), ("kid", 1)]
    assert watched.hub.watchers == 0
