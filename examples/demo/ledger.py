"""What executors really did, counted by themselves in a file that the server knows nothing of.

A line is written before the work is done, so that work which is done twice is counted twice.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from stepgraph_client.task_context import TaskContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Something that an executor did. `key` is the same on every attempt of one task."""

    what: str
    run_id: str
    key: str


class Ledger:
    """A file that several processes write to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, what: str, context: TaskContext) -> None:
        """Note that something is being done now."""
        entry = {"what": what, "run_id": context.run_id, "key": context.idempotency_key}
        # A short line that is appended in one write is whole, whoever else writes.
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def entries(self, run_id: str) -> list[Entry]:
        """Return what was done for a run, in order."""
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        entries = [Entry(**json.loads(line)) for line in lines]
        return [entry for entry in entries if entry.run_id == run_id]


def counts(entries: list[Entry]) -> Counter[str]:
    """Return how often each thing was done."""
    return Counter(entry.what for entry in entries)


def repeated(entries: list[Entry]) -> list[str]:
    """Return what was done more than once for one and the same task."""
    keys = Counter(entry.key for entry in entries)
    return [entry.what for entry in entries if keys[entry.key] > 1]
