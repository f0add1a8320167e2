"""Spans as OTLP has them on the wire."""

from __future__ import annotations

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from stepgraph_server.telemetry.otlp_encoding import encode_span
from stepgraph_server.telemetry.spans import EndedSpan, SpanEvent
from tests.support.otlp_events import CALLER, trace


def encoded(caller="", **fields):
    it = trace(caller, tracestate="a=b" if caller else "")
    given = {"name": "n", "parent_id": it.parent_id, "attributes": {}, **fields}
    span = EndedSpan(trace=it, span_id="1" * 16, start_ns=1, end_ns=2, **given)
    return Span.FromString(encode_span(span))


def test_a_span_says_all_that_it_is():
    event = SpanEvent(name="asked", time_ns=2, attributes={"q": "1"})
    span = encoded(CALLER, error="CODE", events=[event], links=[CALLER], is_remote_call=True)
    assert span.trace_id.hex() == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert span.span_id.hex() == "1" * 16
    assert span.parent_span_id.hex() == "00f067aa0ba902b7"
    assert span.trace_state == "a=b"
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (1, 2)
    assert (span.status.code, span.status.message) == (2, "CODE")
    assert span.kind == Span.SPAN_KIND_CLIENT
    assert span.flags == 0x301  # sampled, and its parent is in another process
    assert (span.events[0].name, span.events[0].time_unix_nano) == ("asked", 2)
    assert span.events[0].attributes[0].value.string_value == "1"
    assert span.links[0].span_id.hex() == "00f067aa0ba902b7"
    assert span.links[0].trace_id.hex() == "4bf92f3577b34da6a3ce929d0e0e4736"


def test_a_span_without_a_parent_begins_its_trace():
    span = encoded()
    assert span.parent_span_id == b""
    assert span.status.code == 0
    assert span.kind == Span.SPAN_KIND_INTERNAL
    assert span.flags == 0x101


def test_a_parent_of_the_same_run_is_of_this_process():
    assert encoded(CALLER, parent_id="2" * 16).flags == 0x101


def test_attributes_keep_their_types_however_often_they_are_encoded():
    for _ in range(2):
        span = encoded(attributes={"text": "1", "number": 1, "texts": ("a", "b")})
        given = {each.key: each.value for each in span.attributes}
        assert given["text"].string_value == "1"
        assert given["number"].int_value == 1
        assert [each.string_value for each in given["texts"].array_value.values] == ["a", "b"]
