"""What the live attempts of runs have shown so far, for watchers that come late.

Rules: pieces are kept as they came and are parsed only when somebody asks, which is rare; most attempts end unasked. Nothing is
kept of a run that shows nothing, and an attempt's text is dropped when it ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import event_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepgraph_server.storage.records import RunKey

MAX_TEXT_BYTES: Final = 512 * 1024
"""So many bytes of deltas are kept of one attempt. Of a longer one a late watcher hears that something is missing."""


@dataclass(slots=True)
class _Shown:
    """What an attempt has shown. `pieces` is None once it was too much."""

    attempt: int
    pieces: list[bytes] | None = field(default_factory=list)
    size: int = 0

    def add(self, piece: bytes) -> None:
        """Keep a serialized TransientEvent, as long as there is room."""
        if self.pieces is None:
            return
        self.size += len(piece)
        if self.size > MAX_TEXT_BYTES:
            self.pieces = None
        else:
            self.pieces.append(piece)


class ShownTexts:
    """The texts of all runs, by run and task. A task has one attempt that counts, the last one that showed something."""

    def __init__(self) -> None:
        self._runs: dict[RunKey, dict[str, _Shown]] = {}

    def add(self, key: RunKey, task_id: str, attempt: int, event: bytes) -> None:
        """Keep what an attempt shows. An older attempt of the task is forgotten, and a piece of one is not kept."""
        tasks = self._runs.setdefault(key, {})
        shown = tasks.get(task_id)
        if shown is None or shown.attempt < attempt:
            shown = tasks[task_id] = _Shown(attempt)
        if shown.attempt == attempt:
            shown.add(event)

    def end(self, key: RunKey, task_id: str, attempt: int) -> bool:
        """Forget an attempt that ended, and return whether it had shown anything."""
        tasks = self._runs.get(key)
        shown = tasks.get(task_id) if tasks else None
        if tasks is None or shown is None or shown.attempt != attempt:
            return False
        del tasks[task_id]
        if not tasks:
            del self._runs[key]
        return True

    def end_run(self, key: RunKey) -> None:
        """Forget a run that ended."""
        self._runs.pop(key, None)

    def of_run(self, key: RunKey) -> Iterator[tuple[str, int, bytes]]:
        """Yield for each live attempt of a run its task, number and a serialized TransientEvent with all its text."""
        for task_id, shown in self._runs.get(key, {}).items():
            yield task_id, shown.attempt, _so_far(task_id, shown).SerializeToString()

    def runs(self) -> list[RunKey]:
        """Return the runs that have shown something."""
        return list(self._runs)


def _so_far(task_id: str, shown: _Shown) -> event_pb2.TransientEvent:
    if shown.pieces is None:
        return event_pb2.TransientEvent(
            task_id=task_id,
            attempt=shown.attempt,
            progress_dropped=event_pb2.TransientEvent.ProgressDropped(),
        )
    texts: list[str] = []
    thoughts: list[str] = []
    for piece in shown.pieces:
        progress = event_pb2.TransientEvent.FromString(piece).progress
        if progress.HasField("text"):
            texts.append(progress.text.text)
        elif progress.HasField("thinking"):
            thoughts.append(progress.thinking.text)
    so_far = event_pb2.TransientEvent.TextSoFar(text="".join(texts), thinking="".join(thoughts))
    return event_pb2.TransientEvent(task_id=task_id, attempt=shown.attempt, text_so_far=so_far)
