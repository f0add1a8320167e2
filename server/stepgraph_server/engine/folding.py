"""States of runs, made of their journals.

Rules: reads, and never writes; a run that can't be folded says so by itself, and no other run notices.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import event_pb2
from stepgraph_server.core.errors import Quarantined, Refused
from stepgraph_server.core.run import evolve, new_state

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepgraph_server.core.graph import CompiledGraph
    from stepgraph_server.core.state import RunState
    from stepgraph_server.engine.graph_cache import GraphCache
    from stepgraph_server.storage.records import RunKey, RunRecord
    from stepgraph_server.storage.store import Store

#: How much of a journal is read at once; between two reads other runs have their turn.
READ_BYTES: Final = 1024 * 1024
#: So many events are folded in one turn of the loop, which takes some milliseconds; a long run does not hold up the others.
EVENTS_PER_TURN: Final = 256

#: What is said of a run that was found quarantined.
QUARANTINED_BEFORE: Final = "it was quarantined before"


class Folder:
    """Folds runs."""

    def __init__(self, store: Store, graphs: GraphCache) -> None:
        self._store = store
        self._graphs = graphs

    async def record(self, key: RunKey) -> RunRecord:
        """Return the row of a run. Raises Refused RUN_NOT_FOUND."""
        record = await self._store.runs.get(key)
        if record is None:
            message = f"there is no run {key.run_id!r} in namespace {key.namespace!r}"
            raise Refused("RUN_NOT_FOUND", message, metadata={"run_id": key.run_id})
        return record

    async def fold(self, key: RunKey) -> RunState:
        """Return the state of a run that may be acted on.

        Raises:
            Refused: There is no such run; nothing else is refused here.
            Quarantined: It can't be folded, or was marked so before.
            JournalUnavailable: Nothing can be read now.
        """
        record = await self.record(key)
        if record.quarantined:
            raise Quarantined(key.run_id, record.progress.last_sequence, QUARANTINED_BEFORE)
        return await self.fold_until(key, record, None)

    async def fold_until(self, key: RunKey, record: RunRecord, last: int | None) -> RunState:
        """Return the state of a run after an event, or after all. Raises as `fold` does, but for the mark."""
        digest = record.creation.graph_digest
        if record.creation.origin:
            # It begins by the graph of the run that it is made of.
            digest = await self._first_graph(key) or digest
        graph = await self._graph(key, digest)
        state = new_state(key.run_id, graph, record.creation.create_time)
        rested = 0
        while last is None or state.sequence < last:
            batches = await self._store.journal.read(key, state.sequence, READ_BYTES)
            if not batches:
                break
            for stored in batches:
                state.journal_bytes += len(stored.batch)
                if record.creation.origin:
                    await self._find_graphs(key, state, stored.batch)
                for event in _events(state, stored.batch):
                    if last is not None and event.sequence > last:
                        return state
                    _fold_event(state, event)
                    if state.sequence - rested >= EVENTS_PER_TURN:
                        rested = state.sequence
                        await asyncio.sleep(0)
        return state

    async def _graph(self, key: RunKey, digest: str) -> CompiledGraph:
        try:
            return await self._graphs.by_digest(key.namespace, digest)
        except Refused as error:
            # It was there when the run was created.
            raise Quarantined(key.run_id, 0, str(error)) from error

    async def _first_graph(self, key: RunKey) -> str:
        for stored in await self._store.journal.read(key, 0, 1):
            return event_pb2.EventBatch.FromString(stored.batch).events[0].run_started.graph.digest
        return ""

    async def _find_graphs(self, key: RunKey, state: RunState, batch: bytes) -> None:
        """Have the graphs at hand that a batch says the run goes on by."""
        for event in _events(state, batch):
            digest = event.run_forked.graph.digest
            if digest:
                state.graphs[digest] = await self._graph(key, digest)


def _events(state: RunState, batch: bytes) -> Iterable[event_pb2.RunEvent]:
    try:
        return event_pb2.EventBatch.FromString(batch).events
    except Exception as error:
        raise Quarantined(state.run_id, state.sequence, repr(error)) from error


def _fold_event(state: RunState, event: event_pb2.RunEvent) -> None:
    try:
        evolve(state, event)
    except Exception as error:  # whatever stops a fold stops it for this run alone, and says so
        raise Quarantined(state.run_id, state.sequence, repr(error)) from error
