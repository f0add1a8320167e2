"""Spans that have ended."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from stepgraph_server.telemetry.spans import EndedSpan, nanoseconds
from tests.support.otlp_events import trace


def span(error):
    return EndedSpan(
        trace=trace(),
        name="n",
        span_id="1" * 16,
        parent_id="",
        start_ns=1,
        end_ns=2,
        attributes={},
        error=error,
    )


def test_the_code_of_a_failure_is_its_error_type():
    assert span("RUN_LIMIT").attributes == {"error.type": "RUN_LIMIT"}
    assert span("").attributes == {}


def test_times_are_nanoseconds():
    assert nanoseconds(Timestamp(seconds=2, nanos=5)) == 2_000_000_005
