"""What the engine tells telemetry: one call for each append that is durable, and one for each run in memory.

Rules: called on the loop, in the middle of everything, so it costs a comparison for what is not recorded and a line in a queue
for what is. It never raises, and the engine never asks what became of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph.v1 import run_pb2
from stepgraph_server.telemetry.projector import Durable
from stepgraph_server.telemetry.trace_ids import RunTrace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph.v1 import event_pb2
    from stepgraph_server.core.state import RunState
    from stepgraph_server.telemetry.recorder import SpanRecorder
    from stepgraph_server.telemetry.sampling import Sampler
    from stepgraph_server.telemetry.tally import Tally

_RUNNING: Final = run_pb2.RUN_STATUS_RUNNING
_STOPPING: Final = run_pb2.RUN_STATUS_STOPPING


class RunObserver:
    """Sees what happens in runs. Without anything to tell it to, nothing is recorded and traces are passed on."""

    def __init__(
        self,
        sampler: Sampler | None = None,
        recorder: SpanRecorder | None = None,
        tally: Tally | None = None,
    ) -> None:
        self._sampler: Final = sampler
        self._recorder: Final = recorder
        self._tally: Final = tally

    def trace_of(self, namespace: str, state: RunState) -> RunTrace:
        """Return the trace of a run that has started. The same for the same run, whenever it is asked for."""
        return RunTrace(namespace, state, self._sampler)

    def durable(
        self, trace: RunTrace, events: Sequence[event_pb2.RunEvent], size: int, status: int
    ) -> None:
        """Take the events of one append, once; `size` is that of its bytes, `status` that of the run after it."""
        if self._tally is not None:
            self._tally.count(events, size)
        if trace.is_sampled and self._recorder is not None:
            rests = status not in (_RUNNING, _STOPPING)
            self._recorder.offer(Durable(trace=trace, events=events, size=size, rests=rests))
