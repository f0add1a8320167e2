"""What tests of watches are made of: a store whose appends are shown by a hub, and the way back from bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2, run_service_pb2, task_pb2
from stepgraph_server.engine.watch.hub import WatchHub
from stepgraph_server.storage.memory import MemoryStore
from stepgraph_server.storage.records import RunProgress
from tests.contracts.storing import COMPLETED, Bench, append, ending, key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepgraph_server.engine.watch.subscription import Ready, WatchItem
    from stepgraph_server.storage.records import Append, Appended, RunKey

FULL = run_service_pb2.WATCH_VIEW_FULL
SUMMARY = run_service_pb2.WATCH_VIEW_SUMMARY


class Watched(Bench):
    """A started store whose hub shows what is appended."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.hub = WatchHub(self.store.journal, self.store.runs)

    def _on_appended(self, results: list[Appended]) -> None:
        for result in results:
            if result.error is None:
                one = result.append
                self.hub.publish(
                    one.key,
                    one.batch,
                    one.first_sequence,
                    one.last_sequence,
                    result.position,
                    terminal=one.ending is not None,
                    # Of others the watchers read the row, which these tests are about.
                    creation=one.creation if one.prefix is not None else None,
                )
        super()._on_appended(results)

    def show(self, *events: event_pb2.TransientEvent, run: RunKey | None = None) -> None:
        """Show transient events."""
        self.hub.publish_transient(
            run or key(),
            [(event.task_id, event.attempt, event.SerializeToString()) for event in events],
        )


def last(first: int, to: int | None = None, **fields: object) -> Append:
    """Make the append that ends a run."""
    to = first if to is None else to
    progress = RunProgress(status=COMPLETED, last_sequence=to)
    return append(first, to, ending=ending(), progress=progress, **fields)


def delta(text: str, *, task: str = "1/n/t0", attempt: int = 1) -> event_pb2.TransientEvent:
    progress = task_pb2.TaskProgress(text=task_pb2.TaskProgress.TextDelta(text=text))
    return event_pb2.TransientEvent(task_id=task, attempt=attempt, progress=progress)


def parsed(ready: Ready) -> list[run_service_pb2.WatchBatch]:
    assert isinstance(ready, list), ready
    return [run_service_pb2.WatchBatch.FromString(item.to_bytes()) for item in ready]


def sequences(ready: Ready) -> list[int]:
    return [event.sequence for batch in parsed(ready) for event in batch.events]


def shown(ready: Ready) -> list[tuple[str, str]]:
    """Return kind and text of the transient events."""
    found = []
    for batch in parsed(ready):
        for event in batch.transient_events:
            kind = event.WhichOneof("kind") or ""
            text = {"progress": event.progress.text.text, "text_so_far": event.text_so_far.text}
            found.append((kind, text.get(kind, str(event.attempt))))
    return found


def size_of(ready: Ready | Iterable[WatchItem]) -> int:
    assert isinstance(ready, list)
    return sum(len(item.to_bytes()) for item in ready)
