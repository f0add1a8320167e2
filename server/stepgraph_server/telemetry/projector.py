"""Spans of all runs that are recorded, made of what became durable.

Rules: what has begun in a run is kept while something is under way with it. When it rests, after a restart, and where something
is missing in between, it is read again from the journal: so nothing is held for a run that waits a month for a person.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from stepgraph_server.telemetry.projection import RunProjection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph.v1 import event_pb2
    from stepgraph_server.telemetry.spans import EndedSpan
    from stepgraph_server.telemetry.trace_ids import RunTrace

MAX_RUNS: Final = 10_000
"""Of so many runs it is remembered what has begun; of those that were quiet for longest it is read again."""


class History(Protocol):
    """Reads what a run has behind it. It may block."""

    def __call__(
        self, namespace: str, run_id: str, after: int
    ) -> Sequence[event_pb2.RunEvent] | None:
        """Return the next events after a sequence, as many as are read at once; None if nothing can be read now."""
        ...


@dataclass(slots=True, kw_only=True)
class Durable:
    """Events of a run that became durable at once."""

    trace: RunTrace
    events: Sequence[event_pb2.RunEvent]
    #: How much memory they take, about.
    size: int
    #: Nothing is under way with the run after them, until something comes from outside.
    rests: bool


class Projector:
    """The projections of runs. For one thread."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._runs: OrderedDict[tuple[str, str], RunProjection] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    def take(self, durable: Durable) -> list[EndedSpan] | None:
        """Return the spans that ended with some events; None if what came before them can't be read."""
        trace = durable.trace
        key = (trace.namespace, trace.run_id)
        first = durable.events[0].sequence
        run = self._runs.pop(key, None)
        if run is None or run.sequence >= first:
            run = RunProjection(trace)
        if run.sequence != first - 1 and not self._catch_up(run, first - 1):
            return None
        spans = run.take(durable.events)
        if not durable.rests:
            self._runs[key] = run
            if len(self._runs) > MAX_RUNS:
                self._runs.popitem(last=False)
        return spans

    def _catch_up(self, run: RunProjection, until: int) -> bool:
        """Take what a run has behind it. The spans of that were recorded when it happened, or are lost."""
        while run.sequence < until:
            trace = run.trace
            events = self._history(trace.namespace, trace.run_id, run.sequence)
            if not events:
                return False
            run.take(event for event in events if run.sequence < event.sequence <= until)
        return run.sequence == until
