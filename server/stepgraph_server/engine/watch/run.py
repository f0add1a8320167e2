"""Watching one run: the cursor is the sequence of the last event that was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


class RunSubscription(Subscription):
    """Watches one run. It ends after the run's last event, or at the last one of now if only history is wanted."""

    def __init__(
        self,
        sources: Sources,
        key: RunKey,
        after_sequence: int,
        *,
        summary: bool,
        history_only: bool,
    ) -> None:
        super().__init__(sources, summary=summary)
        self.key = key
        self.sequence = after_sequence
        """The last event that was given."""
        self._history_only = history_only
        self._last_of_history: int | None = None

    def _newer(self, batch: ShownBatch) -> Iterable[Part]:
        if batch.last_sequence <= self.sequence:
            return
        for part in batch.parts(summary=self._summary):
            if part.last_sequence > self.sequence:
                yield part.after(self.sequence) if part.first_sequence <= self.sequence else part

    def _given(self, batch: ShownBatch, part: Part) -> None:
        del batch  # a sequence says enough
        self.sequence = part.last_sequence

    def _passed(self, batch: ShownBatch) -> None:
        if batch.terminal:
            self._is_ending = True

    def _joins(self, batch: ShownBatch) -> bool:
        return batch.first_sequence <= self.sequence + 1

    async def _read(self) -> list[ShownBatch]:
        if self._history_only and self._last_of_history is None:
            record = await self._runs.get(self.key)
            self._last_of_history = record.progress.last_sequence if record else 0
        found = await self._journal.read(self.key, self.sequence, READ_BYTES)
        last = self._last_of_history
        return [
            shown(self.key, batch) for batch in found if last is None or batch.last_sequence <= last
        ]

    async def _nothing_follows(self) -> bool:
        if self._history_only or self._is_ending:
            return True
        record = await self._runs.get(self.key)
        # A run that is gone or can't be read any further will not go on either.
        if record is None or record.quarantined:
            return True
        # Only if the end itself was given: it may have been committed after the read, and is in the buffer then.
        return record.is_final and record.progress.last_sequence <= self.sequence

    def _texts_so_far(self) -> Iterable[ShownTransient]:
        return texts_of(self._texts, self.key)

    async def _decide(self, key: RunKey) -> None:
        raise AssertionError(key)  # nothing is ever undecided here
