"""Spans on their way to a collector."""

from __future__ import annotations

import logging

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace.export import SpanExportResult

from stepgraph_server.telemetry import exporting
from stepgraph_server.telemetry.exporting import OtlpSpans, Reachability, quiet_exporter, resource
from stepgraph_server.telemetry.spans import EndedSpan, SpanEvent
from tests.support.otlp_events import CALLER, trace

THEIRS = logging.getLogger("opentelemetry.exporter.otlp.proto.grpc.exporter")


class Exporter:
    """Stands for OpenTelemetry's: keeps what it got, and logs as that does when it fails."""

    def __init__(self):
        self.result = SpanExportResult.SUCCESS
        self.spans = []
        self.shut = 0

    def export(self, spans):
        self.spans += spans
        if self.result is SpanExportResult.FAILURE:
            THEIRS.error("Failed to export traces")
        return self.result

    def shutdown(self):
        self.shut += 1


@pytest.fixture
def exporter():
    return Exporter()


@pytest.fixture
def sink(exporter):
    return OtlpSpans(resource("1.2"), "1.2", exporter)


def span(caller="", **fields):
    it = trace(caller, tracestate="a=b" if caller else "")
    given = {"name": "n", "span_id": "1" * 16, "parent_id": it.parent_id, **fields}
    return EndedSpan(trace=it, start_ns=1, end_ns=2, attributes={"x": 1}, **given)


def test_a_span_is_encoded_as_it_was_made(sink, exporter):
    event = SpanEvent(name="asked", time_ns=2, attributes={"q": "1"})
    assert sink.send([span(CALLER, error="CODE", events=[event], links=[CALLER])])
    [of_resource] = encode_spans(exporter.spans).resource_spans
    [of_scope] = of_resource.scope_spans
    [wire] = of_scope.spans
    assert of_scope.scope.name == "stepgraph"
    assert wire.trace_id.hex() == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert wire.span_id.hex() == "1" * 16
    assert wire.parent_span_id.hex() == "00f067aa0ba902b7"
    assert wire.trace_state == "a=b"
    assert (wire.start_time_unix_nano, wire.end_time_unix_nano) == (1, 2)
    assert (wire.status.code, wire.status.message) == (2, "CODE")
    assert wire.flags & 0x200  # its parent is in another process
    assert wire.events[0].name == "asked"
    assert wire.links[0].span_id.hex() == "00f067aa0ba902b7"


def test_a_span_without_a_parent_begins_its_trace(sink, exporter):
    sink.send([span()])
    [wire] = encode_spans(exporter.spans).resource_spans[0].scope_spans[0].spans
    assert wire.parent_span_id == b""
    assert wire.status.code == 0


def test_that_a_collector_is_away_is_said_once_and_so_is_that_it_is_back(sink, exporter, caplog):
    caplog.set_level(logging.INFO)
    exporter.result = SpanExportResult.FAILURE
    assert not sink.send([span()])
    assert not sink.send([span()])
    exporter.result = SpanExportResult.SUCCESS
    assert sink.send([span()])
    assert [each.action for each in caplog.records] == ["collector.lost", "collector.regained"]


def test_what_others_export_is_logged_as_ever(caplog):
    with quiet_exporter():
        THEIRS.error("ours")
    THEIRS.error("theirs")
    assert [each.message for each in caplog.records] == ["theirs"]


def test_nothing_is_sent_after_it_was_closed(sink, exporter):
    sink.close()
    sink.close()
    assert exporter.shut == 1
    assert not sink.send([span()])
    assert exporter.spans == []


def test_the_environment_goes_before_what_we_say_of_ourselves(monkeypatch):
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    assert resource("1.2").attributes["service.name"] == "stepgraph"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.version=9,team=blue")
    given = resource("1.2").attributes
    assert (given["service.name"], given["service.version"], given["team"]) == ("mine", "9", "blue")
    assert given["service.instance.id"]


def test_a_signal_that_was_never_away_says_nothing(caplog):
    caplog.set_level(logging.INFO)
    Reachability("traces").note(taken=True)
    assert caplog.records == []
    assert exporting.SERVICE_NAME == "stepgraph"
