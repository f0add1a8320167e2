"""The events of a run, for threads that are not the loop's.

Rules: whoever reads here waits, the loop never does; what can't be read in time counts as not there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import event_pb2
from stepgraph_server.core.errors import StepgraphError
from stepgraph_server.engine.folding import READ_BYTES
from stepgraph_server.storage.records import RunKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph_server.storage.journal import Journal

PATIENCE_S: Final = 5.0


class RunHistory:
    """Reads the journal from another thread. Make it on the loop of the store."""

    def __init__(self, journal: Journal, patience_s: float = PATIENCE_S) -> None:
        self._journal = journal
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()

    def __call__(
        self, namespace: str, run_id: str, after: int
    ) -> Sequence[event_pb2.RunEvent] | None:
        """Return the next events after a sequence, as many as are read at once; None if they can't be read now."""
        read = self._journal.read(RunKey(namespace, run_id), after, READ_BYTES)
        try:
            future = asyncio.run_coroutine_threadsafe(read, self._loop)
        except RuntimeError:
            # The loop was closed before this thread had ended.
            read.close()
            return None
        try:
            batches = future.result(self._patience_s)
        except (StepgraphError, TimeoutError):
            future.cancel()
            return None
        # A batch is returned whole, so the first may begin before what was asked for.
        return [
            event
            for stored in batches
            for event in event_pb2.EventBatch.FromString(stored.batch).events
            if event.sequence > after
        ]
