from __future__ import annotations

from datetime import timedelta

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from stepgraph_client.durations import MAX_SECONDS, DurationTextError, duration_text, to_duration


@pytest.mark.parametrize(
    ("text", "seconds", "nanos"),
    [
        ("30s", 30, 0),
        ("1.5h", 5400, 0),
        ("1h30m", 5400, 0),
        ("250ms", 0, 250_000_000),
        ("0.000000001s", 0, 1),
        ("2d", 172_800, 0),
        ("0s", 0, 0),
        (" 5m ", 300, 0),
    ],
)
def test_durations_are_read_as_people_write_them(text, seconds, nanos) -> None:
    assert to_duration(text) == Duration(seconds=seconds, nanos=nanos)


@pytest.mark.parametrize(
    "text", ["", "30", "s", "-1s", "1 h", "1x", "1e3s", "0.5ns", "99999999999d"]
)
def test_what_is_no_duration_is_refused_with_an_example(text) -> None:
    with pytest.raises(DurationTextError, match="write one such as"):
        to_duration(text)


def test_timedeltas_are_taken_exactly() -> None:
    assert to_duration(timedelta(days=1, microseconds=1)) == Duration(seconds=86_400, nanos=1_000)


def test_negative_timedeltas_are_refused() -> None:
    with pytest.raises(DurationTextError):
        to_duration(timedelta(seconds=-1))


@pytest.mark.parametrize(
    ("seconds", "nanos", "text"),
    [
        (90, 0, "90s"),
        (7200, 0, "2h"),
        (0, 250_000_000, "0.25s"),
        (0, 0, "0s"),
        (172_800, 0, "2d"),
        (600, 0, "10m"),
        (1, 5, "1.000000005s"),
    ],
)
def test_durations_are_written_in_the_largest_whole_unit(seconds, nanos, text) -> None:
    assert duration_text(Duration(seconds=seconds, nanos=nanos)) == text


@given(st.integers(0, MAX_SECONDS), st.integers(0, 999_999_999))
def test_writing_and_reading_gives_the_same_duration(seconds, nanos) -> None:
    duration = Duration(seconds=seconds, nanos=nanos)
    assert to_duration(duration_text(duration)) == duration
