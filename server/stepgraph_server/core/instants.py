"""Points in time and spans as integers.

Rules: this module converts and never reads a clock. An `Instant` is microseconds since the Unix epoch, a `Span` is
microseconds. Integers compare, add and store exactly; `datetime` would cost more than the rest of an event on the hot path.
"""

from __future__ import annotations

from typing import NewType

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

Instant = NewType("Instant", int)
"""Microseconds since the Unix epoch."""

Span = NewType("Span", int)
"""A length of time in microseconds; 0 or more."""

MICROSECOND = Span(1)
MILLISECOND = Span(1_000)
SECOND = Span(1_000_000)
MINUTE = Span(60_000_000)
HOUR = Span(3_600_000_000)

#: Timestamps end with the year 9999, as google.protobuf.Timestamp does.
MAX_INSTANT = Instant(253_402_300_799_999_999)


def after(start: Instant, span: Span) -> Instant:
    """Return the instant that is `span` later, at most MAX_INSTANT."""
    return Instant(min(start + span, MAX_INSTANT))


def to_timestamp(instant: Instant) -> Timestamp:
    """Return `instant` as a protobuf Timestamp."""
    seconds, micros = divmod(instant, 1_000_000)
    return Timestamp(seconds=seconds, nanos=micros * 1_000)


def from_timestamp(timestamp: Timestamp) -> Instant:
    """Return a Timestamp as an Instant, cut to microseconds."""
    return Instant(timestamp.seconds * 1_000_000 + timestamp.nanos // 1_000)


def to_duration(span: Span) -> Duration:
    """Return `span` as a protobuf Duration."""
    seconds, micros = divmod(span, 1_000_000)
    return Duration(seconds=seconds, nanos=micros * 1_000)


def from_duration(duration: Duration) -> Span:
    """Return a Duration as a Span, cut to microseconds; negative ones become 0."""
    return Span(max(0, duration.seconds * 1_000_000 + duration.nanos // 1_000))


def seconds_text(span: Span) -> str:
    """Return `span` for people: "0.25 s", "3 s", "10 min"."""
    if span >= MINUTE and span % MINUTE == 0:
        return f"{span // MINUTE} min"
    return f"{span / SECOND:g} s"
