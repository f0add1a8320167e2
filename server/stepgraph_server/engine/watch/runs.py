"""Watching many runs: the cursor is a position of the journal, the same for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NewType

from stepgraph_server.engine.watch.subscription import (
    READ_BYTES,
    Sources,
    Subscription,
    shown,
    texts_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepgraph_server.engine.watch.buffer import ShownBatch, ShownTransient
    from stepgraph_server.engine.watch.frames import Part
    from stepgraph_server.storage.records import RunKey
    from stepgraph_server.storage.runs import RunQuery

MAX_VERDICTS: Final = 50_000
"""Of so many runs a watcher of many remembers whether they are among those that it watches."""

ResumePoint = NewType("ResumePoint", int)
"""Up to where a watcher of many runs has got: a position of the journal, and how much of the append there."""

_PART_BITS: Final = 20
"""An append has fewer events than 2 ** 20: a whole run may have 200,000."""


def point_at(position: int) -> ResumePoint:
    """Return the point behind all of the append at a position."""
    return ResumePoint(position << _PART_BITS)


class RunsSubscription(Subscription):
    """Watches many runs of a namespace; never ends by itself."""

    def __init__(
        self,
        sources: Sources,
        namespace: str,
        query: RunQuery | None,
        after: ResumePoint | None,
        *,
        summary: bool,
    ) -> None:
        super().__init__(sources, summary=summary)
        self.namespace = namespace
        self._query = query
        self._verdicts: dict[RunKey, bool] = {}
        if after is None:
            # From now: everything up to the head counts as given.
            self._position, self._done = sources.journal.head_position(), 0
            self._go_live()
        else:
            self._position, self._done = divmod(after, 1 << _PART_BITS)

    @property
    def position(self) -> int:
        """The position of the journal that it has got to."""
        return self._position

    @property
    def resume_point(self) -> ResumePoint:
        """Where a later watch goes on behind all that was given."""
        return ResumePoint(self._position << _PART_BITS | self._done)

    def offer(self, batch: ShownBatch) -> None:
        """Show the events of an append that is durable."""
        if self._query is not None and batch.creation is not None:
            watched = self._query.matches_creation(batch.creation)
            self._remember_verdict(batch.key, is_watched=watched)
        if self._verdict(batch.key) is not False:
            if batch.creation is not None and batch.first_sequence > 1:
                # What a fork begins with was copied before it, and is in the journal only.
                self._fall_behind()
                self._wake()
                return
            super().offer(batch)
        elif self._is_live and not self._buffer:
            # So that a later watch does not read all of what this one has seen pass.
            self._passed(batch)

    def offer_transient(self, transient: ShownTransient) -> None:
        """Show a transient event, if it is known that its run is watched."""
        if self._verdict(transient.attempt.key):
            super().offer_transient(transient)

    def _verdict(self, key: RunKey) -> bool | None:
        return True if self._query is None else self._verdicts.get(key)

    async def _decide(self, key: RunKey) -> None:
        assert self._query is not None
        record = await self._runs.get(key)
        self._remember_verdict(key, is_watched=record is not None and self._query.matches(record))

    def _remember_verdict(self, key: RunKey, *, is_watched: bool) -> None:
        if len(self._verdicts) >= MAX_VERDICTS:
            self._verdicts.clear()
        self._verdicts[key] = is_watched

    def _newer(self, batch: ShownBatch) -> Iterable[Part]:
        if batch.position < self._position:
            return ()
        if batch.position == self._position and not self._done:
            return ()
        verdict = self._verdict(batch.key)
        if verdict is None:
            self._undecided = batch.key
        if not verdict:
            return ()
        parts = batch.parts(summary=self._summary)
        if batch.position > self._position:
            return parts
        given = batch.first_sequence + self._done - 1
        return [
            part.after(given) if part.first_sequence <= given else part
            for part in parts
            if part.last_sequence > given
        ]

    def _given(self, batch: ShownBatch, part: Part) -> None:
        self._position = batch.position
        self._done = part.last_sequence - batch.first_sequence + 1

    def _passed(self, batch: ShownBatch) -> None:
        if batch.position >= self._position:
            self._position, self._done = batch.position, 0

    def _joins(self, batch: ShownBatch) -> bool:
        return batch.position <= self._position

    async def _read(self) -> list[ShownBatch]:
        after = self._position - 1 if self._done else self._position
        found = await self._journal.read_positions(self.namespace, after, READ_BYTES)
        return [shown(key, batch) for key, batch in found]

    async def _nothing_follows(self) -> bool:
        return self._is_ending

    def _texts_so_far(self) -> Iterable[ShownTransient]:
        for key in self._texts.runs():
            if key.namespace == self.namespace and self._verdict(key):
                yield from texts_of(self._texts, key)
