"""Points in time and spans convert exactly at the edges."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from stepgraph_server.core.instants import (
    MAX_INSTANT,
    MINUTE,
    SECOND,
    Instant,
    Span,
    after,
    from_duration,
    from_timestamp,
    seconds_text,
    to_duration,
    to_timestamp,
)


@pytest.mark.parametrize("micros", [0, 1, 999_999, 1_000_000, 1_764_511_316_123_456])
def test_an_instant_survives_the_way_to_a_timestamp_and_back(micros: int):
    """Microseconds are never rounded."""
    assert from_timestamp(to_timestamp(Instant(micros))) == micros


@pytest.mark.parametrize("micros", [0, 1, 1_500_000, 3_600_000_000])
def test_a_span_survives_the_way_to_a_duration_and_back(micros: int):
    """Microseconds are never rounded."""
    assert from_duration(to_duration(Span(micros))) == micros


def test_nanoseconds_are_cut():
    """A finer time of a client's becomes the microsecond that it lies in."""
    assert from_timestamp(Timestamp(seconds=1, nanos=1_999)) == 1_000_001
    assert from_duration(Duration(nanos=999)) == 0


def test_a_negative_duration_is_nothing():
    """No timer goes off before it was set."""
    assert from_duration(Duration(seconds=-3)) == 0


def test_time_ends_with_the_year_9999():
    """An instant that a Timestamp can't hold is never made."""
    assert after(Instant(MAX_INSTANT - 1), MINUTE) == MAX_INSTANT
    assert after(Instant(5), SECOND) == 1_000_005


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (Span(250_000), "0.25 s"),
        (3 * SECOND, "3 s"),
        (10 * MINUTE, "10 min"),
        (90 * SECOND, "90 s"),
    ],
)
def test_spans_are_written_for_people(span: int, text: str):
    """Messages about limits use the largest unit that fits."""
    assert seconds_text(Span(span)) == text
