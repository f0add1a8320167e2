"""The trace of a run: which one it is, and what its spans are called in it.

Rules: everything here follows from what the journal has, so after a restart a span has the id that it had before, and what an
executor was told still points to it. Nothing is kept and nothing is made by chance.

A run continues its caller's trace if the caller has named one; else it has a trace of its own. If nobody records, there is
no span that an executor could continue, so the caller's context is passed on as it came.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stepgraph_server.core.graph import CompiledGraph
    from stepgraph_server.core.state import RunState
    from stepgraph_server.telemetry.sampling import Sampler

_PARTS: Final = 4
"""Version, trace, span, flags; a later version may have more."""


class RunTrace:
    """What is known of a run's trace. Made once for a run in memory; the same is made again after a restart.

    Attributes:
        namespace: Where the run lives.
        run_id: The run.
        graph: The graph that it walks, for the kinds of its nodes.
        trace_id: 32 hexadecimal digits; empty if there is no trace.
        parent_id: The caller's span, 16 hexadecimal digits; empty if the trace begins here.
        tracestate: The caller's, as it came.
        is_sampled: The spans of this run are recorded, all of them or none.
    """

    __slots__ = (
        "_key",
        "_passed_on",
        "graph",
        "is_sampled",
        "namespace",
        "parent_id",
        "run_id",
        "trace_id",
        "tracestate",
    )

    def __init__(self, namespace: str, state: RunState, sampler: Sampler | None) -> None:
        """Without a sampler nobody records, and nothing is computed."""
        self.namespace = namespace
        self.run_id = state.run_id
        self.graph: CompiledGraph = state.graph
        self.tracestate = state.tracestate
        self._passed_on = state.traceparent
        self._key = b""
        self.trace_id = self.parent_id = flags = ""
        self.is_sampled = False
        # The API has looked at it; whatever else is in a journal counts as none, and never stops a run.
        parts = state.traceparent.split("-")
        if len(parts) >= _PARTS:
            _, self.trace_id, self.parent_id, flags = parts[:_PARTS]
        if sampler is None:
            return
        # The start is part of it: another server, or another journal, may have a run of the same name.
        name = f"{namespace}/{state.run_id}/{state.started_at}".encode()
        self._key = blake2b(name, digest_size=32).digest()
        if flags:
            self.is_sampled = sampler.decides(
                self.trace_id, parent_sampled=bool(int(flags, 16) & 1)
            )
        else:
            self.trace_id = blake2b(b"trace", digest_size=16, key=self._key).hexdigest()
            self.is_sampled = sampler.decides(self.trace_id, parent_sampled=None)

    def run_span(self) -> str:
        """Return the id of the span of the run."""
        return self._span("run")

    def node_span(self, activation_id: str) -> str:
        """Return the id of the span of one running of a node."""
        return self._span(f"node/{activation_id}")

    def attempt_span(self, task_id: str, attempt: int) -> str:
        """Return the id of the span of an attempt."""
        return self._span(f"attempt/{task_id}/{attempt}")

    def traceparent(self, task_id: str, attempt: int) -> str:
        """Return the W3C trace context that the executor of an attempt gets; empty if there is no trace."""
        if not self._key:
            return self._passed_on
        flags = "01" if self.is_sampled else "00"
        return f"00-{self.trace_id}-{self.attempt_span(task_id, attempt)}-{flags}"

    def node_traceparent(self, activation_id: str) -> str:
        """Return the W3C trace context that a child run of a node continues; empty if there is no trace."""
        if not self._key:
            return self._passed_on
        flags = "01" if self.is_sampled else "00"
        return f"00-{self.trace_id}-{self.node_span(activation_id)}-{flags}"

    def _span(self, name: str) -> str:
        # Zero would be no id; a digest of 8 bytes is zero once in 584 years at a billion a second.
        return blake2b(name.encode(), digest_size=8, key=self._key).hexdigest()


def activation_of(task_id: str) -> str:
    """Return the activation that a task is for: ids of tasks begin with it."""
    superstep, node_id, _ = f"{task_id}//".split("/", 2)
    return f"{superstep}/{node_id}"


def node_of(activation_id: str) -> str:
    """Return the node that an activation runs."""
    return activation_id.partition("/")[2]
