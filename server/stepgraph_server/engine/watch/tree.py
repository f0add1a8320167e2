"""Watching a root with all runs below it: many runs, with an end.

Rules: the cursor is a position of the journal, as for any watch of many runs. It ends after the root's last event, which comes after those
of all runs that the root waited for; or, if only history is wanted, where the journal ends when the watch begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph_server.engine.watch.runs import ResumePoint, RunsSubscription
from stepgraph_server.storage.runs import RunQuery

if TYPE_CHECKING:
    from stepgraph_server.engine.watch.buffer import ShownBatch
    from stepgraph_server.engine.watch.subscription import Sources
    from stepgraph_server.storage.records import RunKey


class TreeSubscription(RunsSubscription):
    """Watches a root and all runs below it."""

    def __init__(
        self,
        sources: Sources,
        root: RunKey,
        after: ResumePoint,
        *,
        summary: bool,
        history_only: bool,
    ) -> None:
        query = RunQuery(root_run_id=root.run_id)
        super().__init__(sources, root.namespace, query, after, summary=summary)
        self.root = root
        self._last_of_history = sources.journal.head_position() if history_only else None

    def _passed(self, batch: ShownBatch) -> None:
        super()._passed(batch)
        if batch.terminal and batch.key == self.root:
            self._is_ending = True

    async def _read(self) -> list[ShownBatch]:
        last = self._last_of_history
        found = await super()._read()
        return [batch for batch in found if last is None or batch.position <= last]

    async def _nothing_follows(self) -> bool:
        if self._last_of_history is not None or self._is_ending:
            return True
        record = await self._runs.get(self.root)
        # A root that is gone or can't be read any further will not go on either.
        if record is None or record.quarantined:
            return True
        if not record.is_final:
            return False
        # Only if the end itself was given: it may have been committed after the read, and is in the buffer then.
        [end, *_] = await self._journal.read(self.root, record.progress.last_sequence - 1, 1)
        return end.position <= self.position
