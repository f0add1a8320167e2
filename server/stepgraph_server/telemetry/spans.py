"""Spans that have ended, as the projection makes them: plain data, before any exporter.

Rules: times are nanoseconds since the epoch, because exporters want them so; ids are hexadecimal digits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from stepgraph_server.telemetry import span_names as names

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from stepgraph_server.telemetry.trace_ids import RunTrace

Attributes: TypeAlias = dict[str, str | int | tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a run, a node or an attempt ended; `error` is the code of a failure, and empty if there was none."""

    outcome: str
    at_ns: int
    error: str = ""


@dataclass(slots=True, kw_only=True)
class SpanEvent:
    """Something that happened at a moment of a span."""

    name: str
    time_ns: int
    attributes: Attributes


@dataclass(slots=True, kw_only=True)
class EndedSpan:
    """A span of a run, a node or an attempt.

    Attributes:
        trace: The trace of its run.
        name: What it is called.
        span_id: Its id, which follows from what it is about.
        parent_id: The span that it stands under; empty for a run whose caller has no trace.
        is_remote_call: It was asked of another process.
        error: Why it counts as failed, the code of a failure; empty if it does not.
        links: Contexts of others that had to do with it, as W3C traceparents.
    """

    trace: RunTrace
    name: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: Attributes
    is_remote_call: bool = False
    error: str = ""
    events: list[SpanEvent] = field(default_factory=list)
    links: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.error:
            self.attributes[names.ERROR_TYPE] = self.error


def nanoseconds(time: Timestamp) -> int:
    """Return a point in time as exporters want it."""
    return time.seconds * 1_000_000_000 + time.nanos
