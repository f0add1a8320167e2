"""The port of the rows of runs: one per run, always as new as the run's last durable append."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepgraph_server.core.instants import Instant
    from stepgraph_server.storage.records import OpenRun, RunCreation, RunKey, RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which runs. All that is set must match; an empty field matches all.

    `create_min` is included, `create_max` is not. `graph_version` counts only with `graph_name`; 0 means all.
    `root_run_id` means the root itself and all runs below it. `after` is the (create_time, run_id) of the last run of
    the page before.
    """

    statuses: frozenset[int] = frozenset()
    graph_digest: str = ""
    graph_name: str = ""
    graph_version: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    create_min: Instant | None = None
    create_max: Instant | None = None
    roots_only: bool = False
    root_run_id: str = ""
    after: tuple[Instant, str] | None = None
    limit: int = 50

    def matches(self, run: RunRecord) -> bool:
        """Whether a run is one of those; `after` and `limit` are not looked at."""
        return (
            not self.statuses or run.progress.status in self.statuses
        ) and self.matches_creation(run.creation)

    def matches_creation(self, creation: RunCreation) -> bool:
        """Whether a run that was created so may be one of those; `statuses` are not looked at either."""
        wanted: list[bool] = [
            not self.graph_digest or creation.graph_digest == self.graph_digest,
            not self.graph_name or creation.graph_name == self.graph_name,
            not self.graph_name
            or not self.graph_version
            or creation.graph_version == self.graph_version,
            not self.roots_only or not creation.parent_run_id,
            not self.root_run_id or creation.root_run_id == self.root_run_id,
            self.labels.items() <= creation.labels.items(),
            self._time_matches(creation.create_time),
        ]
        return all(wanted)

    def _time_matches(self, create_time: Instant) -> bool:
        if self.create_min is not None and create_time < self.create_min:
            return False
        return self.create_max is None or create_time < self.create_max


class Runs(Protocol):
    """The rows of runs. They are written by appends only, except for the mark of a quarantine."""

    async def get(self, key: RunKey) -> RunRecord | None:
        """Return the row of a run, or None if there is no such run."""
        ...

    async def open_runs(self, after_rowid: int, limit: int) -> list[OpenRun]:
        """Return runs of all namespaces that are neither final nor quarantined, by rowid, from behind `after_rowid`.

        Begin with 0; an empty page is the end. Each run that is open during the whole walk comes exactly once. It is said of
        each whether a run whose parent it is has ended.
        """
        ...

    async def count_tree(self, root: RunKey) -> int:
        """Return how many runs there are with that root, itself included."""
        ...

    async def set_quarantined(self, key: RunKey) -> None:
        """Mark a run as one that can't be folded. Repeating it, or naming a run that does not exist, is harmless."""
        ...

    async def list(self, namespace: str, query: RunQuery) -> list[RunRecord]:
        """Return the runs that match, newest first (create_time, then run_id), from behind `query.after`."""
        ...
