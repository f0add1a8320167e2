"""What the API watches by: whole watches as generators of serialized WatchBatches.

Rules: a generator owns its subscription, and closing the one closes the other. What can't be watched is refused with the first
item, and what ends a watch early is raised behind the last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph.v1 import run_service_pb2
from stepgraph_server.core.errors import Quarantined, Refused, Violation
from stepgraph_server.core.instants import SECOND, Span
from stepgraph_server.engine.watch.runs import ResumePoint
from stepgraph_server.engine.watch.subscription import WatchSignal
from stepgraph_server.storage.records import RunKey
from stepgraph_server.storage.runs import RunQuery

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from stepgraph_server.engine.watch.hub import WatchHub
    from stepgraph_server.engine.watch.subscription import Subscription
    from stepgraph_server.storage.records import RunRecord
    from stepgraph_server.storage.runs import Runs

KEEPALIVE_INTERVAL: Final = Span(15 * SECOND)
"""How often a quiet watch says that it lives: well below the minute after which proxies and load balancers cut streams."""


class Watcher:
    """Feeds watches. Each item has the batches that are ready, below the size of a response; an empty one is a keep-alive."""

    def __init__(self, hub: WatchHub, runs: Runs, keepalive: Span = KEEPALIVE_INTERVAL) -> None:
        self._hub = hub
        self._runs = runs
        self._keepalive_s = keepalive / SECOND

    async def watch_run(
        self,
        namespace: str,
        run_id: str,
        after_sequence: int,
        *,
        summary: bool,
        history_only: bool,
    ) -> AsyncGenerator[Sequence[bytes], None]:
        """Yield all that happens in a run after a sequence, until its terminal event.

        Raises:
            Refused: There is no such run, the sequence is beyond its end, or the server shuts down.
            Quarantined: After all that could be read.
        """
        key = RunKey(namespace, run_id)
        await self._check(key, after_sequence)
        view = _view(summary=summary)
        with self._hub.subscribe_run(
            key, after_sequence, view, history_only=history_only
        ) as subscription:
            while (batches := await self._next(subscription)) is not None:
                yield batches
            if self._hub.is_closed:
                raise _shutting_down()
            record = await self._runs.get(key)
            if record is None:
                raise _not_found(key)
            if record.quarantined:
                cause = "its journal can't be folded by this server"
                raise Quarantined(run_id, subscription.sequence, cause)

    async def watch_runs(
        self, namespace: str, query: RunQuery, after_position: int | None, *, summary: bool
    ) -> AsyncGenerator[tuple[Sequence[bytes], int], None]:
        """Yield all that happens in the runs that match, with the point to resume at; after such a point, or from now.

        The first item comes at once, and is empty: from then on nothing is missed, and there is a point to resume at.

        Raises:
            Refused: The point is beyond the journal's end, or the server shuts down.
        """
        after = None if after_position is None else ResumePoint(after_position)
        # Most watch everything: then no row is read to find out.
        only = None if query == RunQuery() else query
        view = _view(summary=summary)
        with self._hub.subscribe_runs(namespace, only, after, view) as subscription:
            _refuse_beyond(subscription.position, self._hub.head_position())
            yield (), subscription.resume_point
            while (batches := await self._next(subscription)) is not None:
                yield batches, subscription.resume_point
            raise _shutting_down()

    async def watch_tree(
        self,
        namespace: str,
        run_id: str,
        after_position: int | None,
        *,
        summary: bool,
        history_only: bool,
    ) -> AsyncGenerator[tuple[Sequence[bytes], int], None]:
        """Yield all that happens in a root and in the runs below it, with the point to resume at, until the root's terminal event.

        After such a point, or from the beginning. The first item comes at once, and is empty.

        Raises:
            Refused: There is no such run, it is no root, the point is beyond the journal's end, or the server shuts down.
            Quarantined: After all that could be read.
        """
        root = RunKey(namespace, run_id)
        record = await self._runs.get(root)
        if record is None:
            raise _not_found(root)
        _refuse_if_child(record)
        after = after_position if after_position is not None else await self._hub.before(root)
        view = _view(summary=summary)
        with self._hub.subscribe_tree(
            root, ResumePoint(after), view, history_only=history_only
        ) as subscription:
            _refuse_beyond(subscription.position, self._hub.head_position())
            yield (), subscription.resume_point
            while (batches := await self._next(subscription)) is not None:
                yield batches, subscription.resume_point
            if self._hub.is_closed:
                raise _shutting_down()
            record = await self._runs.get(root)
            if record is None:
                raise _not_found(root)
            if record.quarantined:
                cause = "its journal can't be folded by this server"
                raise Quarantined(run_id, record.progress.last_sequence, cause)

    async def _check(self, key: RunKey, after_sequence: int) -> None:
        record = await self._runs.get(key)
        if record is None:
            raise _not_found(key)
        last = record.progress.last_sequence
        if after_sequence > last:
            raise Refused(
                "SEQUENCE_OUT_OF_RANGE",
                f"run {key.run_id!r} ends at event {last} for now; there is no event {after_sequence}",
                metadata={
                    "run_id": key.run_id,
                    "last_sequence": str(last),
                    "after_sequence": str(after_sequence),
                },
            )

    async def _next(self, subscription: Subscription) -> Sequence[bytes] | None:
        """Return the batches that are ready, none for a keep-alive, or None at the end."""
        match await subscription.next(self._keepalive_s):
            case WatchSignal.KEEPALIVE:
                return ()
            case WatchSignal.END:
                return None
            case items:
                return [item.to_bytes() for item in items]


def _view(*, summary: bool) -> run_service_pb2.WatchView.ValueType:
    if summary:
        return run_service_pb2.WATCH_VIEW_SUMMARY
    return run_service_pb2.WATCH_VIEW_FULL


def _refuse_beyond(position: int, head: int) -> None:
    """Refuse to wait for what a journal that is older than the token, a backup for one, may give to other events."""
    if position > head:
        raise Refused(
            "SEQUENCE_OUT_OF_RANGE",
            f"the journal ends at position {head} for now, and resume_token is from position {position}; "
            "watch without a token",
            metadata={"after_sequence": str(position), "last_sequence": str(head)},
        )


def _refuse_if_child(record: RunRecord) -> None:
    creation = record.creation
    if creation.parent_run_id:
        path = "include_descendants"
        message = f"run {record.key.run_id!r} is a child run; watch its root {creation.root_run_id!r}, or leave this out"
        raise Refused(
            "INVALID_REQUEST",
            f"{path}: {message}",
            metadata={"field": path},
            violations=[Violation(path=path, message=message)],
        )


def _not_found(key: RunKey) -> Refused:
    message = f"there is no run {key.run_id!r} in namespace {key.namespace!r}"
    return Refused("RUN_NOT_FOUND", message, metadata={"run_id": key.run_id})


def _shutting_down() -> Refused:
    message = "the server shuts down; watch again from where this ended"
    return Refused("SHUTTING_DOWN", message, retry_after=SECOND)
