"""The hub of all watches: it shows what is durable, and what is shown while it happens, to whoever watches.

Rules: called on the loop, after the commit; everything returns at once, and costs nothing for a run that nobody watches. How a
watch goes on from the journal without a gap is in `subscription.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from stepgraph.v1 import run_service_pb2
from stepgraph_server.engine.watch.buffer import AttemptKey, ShownBatch, ShownTransient
from stepgraph_server.engine.watch.run import RunSubscription
from stepgraph_server.engine.watch.runs import ResumePoint, RunsSubscription, point_at
from stepgraph_server.engine.watch.subscription import Sources, Subscription
from stepgraph_server.engine.watch.texts import ShownTexts
from stepgraph_server.engine.watch.tree import TreeSubscription

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph_server.storage.journal import Journal
    from stepgraph_server.storage.records import RunCreation, RunKey
    from stepgraph_server.storage.runs import RunQuery, Runs

K = TypeVar("K")


class WatchHub:
    """Who watches what. One per server, on the loop of the store."""

    def __init__(self, journal: Journal, runs: Runs) -> None:
        self._texts = ShownTexts()
        self._sources = Sources(journal=journal, runs=runs, texts=self._texts, leave=self._leave)
        # Dictionaries without values: sets that keep the order of joining.
        self._by_run: dict[RunKey, dict[Subscription, None]] = {}
        self._by_namespace: dict[str, dict[Subscription, None]] = {}
        self.is_closed = False
        """Whether watches ended because the server shuts down."""

    # For the engine

    def publish(  # noqa: PLR0913  # the parts of one append, once per append
        self,
        key: RunKey,
        batch: bytes,
        first_sequence: int,
        last_sequence: int,
        position: int,
        *,
        terminal: bool,
        creation: RunCreation | None = None,
    ) -> None:
        """Show the events of an append that is durable: in the order of positions, each append once.

        `creation` is that of the first append of a run.
        """
        if terminal:
            self._texts.end_run(key)
        of_run = self._by_run.get(key)
        of_namespace = self._by_namespace.get(key.namespace)
        if of_run is None and of_namespace is None:
            return
        shown = ShownBatch(
            *(key, batch, first_sequence, last_sequence, position),
            terminal=terminal,
            creation=creation,
        )
        for subscription in of_run or ():
            subscription.offer(shown)
        for subscription in of_namespace or ():
            subscription.offer(shown)

    def publish_transient(self, key: RunKey, events: Sequence[tuple[str, int, bytes]]) -> None:
        """Show what attempts show: for each its task, its number and a serialized TransientEvent, in order."""
        for task_id, attempt, event in events:
            self._texts.add(key, task_id, attempt, event)
        if key in self._by_run or key.namespace in self._by_namespace:
            for task_id, attempt, event in events:
                self._offer_transient(ShownTransient(AttemptKey(key, task_id, attempt), event))

    def task_ended(self, key: RunKey, task_id: str, attempt: int, *, discarded: bool) -> None:
        """Forget what an attempt has shown; `discarded` tells watchers that it does not count."""
        had_shown = self._texts.end(key, task_id, attempt)
        if had_shown and discarded:
            self._offer_transient(ShownTransient.discarded(AttemptKey(key, task_id, attempt)))

    def end_run(self, key: RunKey) -> None:
        """End the watches of a run that will not go on, although it is not final: it is quarantined, or deleted."""
        self._texts.end_run(key)
        for subscription in self._by_run.get(key, {}):
            subscription.end()
        for watching in self._by_namespace.get(key.namespace, {}):
            if isinstance(watching, TreeSubscription) and watching.root == key:
                watching.end()

    def close(self) -> None:
        """End all watches now, and those that begin later: the server shuts down."""
        self.is_closed = True
        for subscriptions in (*self._by_run.values(), *self._by_namespace.values()):
            for subscription in subscriptions:
                subscription.end_now()

    # For watchers

    def head_position(self) -> int:
        """Return the journal's last position."""
        return self._sources.journal.head_position()

    async def before(self, key: RunKey) -> ResumePoint:
        """Return the point from which on all of a run follows. The run must exist."""
        [first, *_] = await self._sources.journal.read(key, 0, 1)
        return point_at(first.position - 1)

    @property
    def watchers(self) -> int:
        """How many watches there are."""
        return sum(map(len, (*self._by_run.values(), *self._by_namespace.values())))

    def subscribe_run(
        self,
        key: RunKey,
        after_sequence: int,
        view: run_service_pb2.WatchView.ValueType,
        *,
        history_only: bool = False,
    ) -> RunSubscription:
        """Watch a run from behind an event. The run must exist, and the event too; close the subscription when done."""
        subscription = RunSubscription(
            self._sources,
            key,
            after_sequence,
            summary=_is_summary(view),
            history_only=history_only,
        )
        # What is only read from the journal needs no buffer.
        if not history_only:
            self._by_run.setdefault(key, {})[subscription] = None
        if self.is_closed:
            subscription.end_now()
        return subscription

    def subscribe_runs(
        self,
        namespace: str,
        query: RunQuery | None,
        after: ResumePoint | None,
        view: run_service_pb2.WatchView.ValueType,
    ) -> RunsSubscription:
        """Watch all runs of a namespace that match, from behind a resume point or, with None, from now.

        `query` must not depend on what changes: no statuses; its `after` and `limit` don't count. None matches all.
        """
        subscription = RunsSubscription(
            self._sources, namespace, query, after, summary=_is_summary(view)
        )
        self._by_namespace.setdefault(namespace, {})[subscription] = None
        if self.is_closed:
            subscription.end_now()
        return subscription

    def subscribe_tree(
        self,
        root: RunKey,
        after: ResumePoint,
        view: run_service_pb2.WatchView.ValueType,
        *,
        history_only: bool = False,
    ) -> TreeSubscription:
        """Watch a root and all runs below it, from behind a resume point. The root must exist; close the subscription when done."""
        summary = _is_summary(view)
        subscription = TreeSubscription(
            self._sources, root, after, summary=summary, history_only=history_only
        )
        # What is only read from the journal needs no buffer.
        if not history_only:
            self._by_namespace.setdefault(root.namespace, {})[subscription] = None
        if self.is_closed:
            subscription.end_now()
        return subscription

    def _leave(self, subscription: Subscription) -> None:
        if isinstance(subscription, RunSubscription):
            _remove(self._by_run, subscription.key, subscription)
        elif isinstance(subscription, RunsSubscription):
            _remove(self._by_namespace, subscription.namespace, subscription)

    def _offer_transient(self, transient: ShownTransient) -> None:
        key = transient.attempt.key
        for subscription in self._by_run.get(key, ()):
            subscription.offer_transient(transient)
        for subscription in self._by_namespace.get(key.namespace, ()):
            subscription.offer_transient(transient)


def _is_summary(view: run_service_pb2.WatchView.ValueType) -> bool:
    return view == run_service_pb2.WATCH_VIEW_SUMMARY


def _remove(
    places: dict[K, dict[Subscription, None]], place: K, subscription: Subscription
) -> None:
    here = places.get(place)
    if here is None:
        return
    here.pop(subscription, None)
    if not here:
        del places[place]
