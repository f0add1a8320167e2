"""Spans on their way to a collector."""

from __future__ import annotations

import logging

import pytest
from opentelemetry.sdk.trace.export import SpanExportResult

from stepgraph_server.telemetry import exporting
from stepgraph_server.telemetry.exporting import (
    OtlpSpans,
    Reachability,
    SpanExporter,
    quiet_exporter,
    resource,
)
from stepgraph_server.telemetry.spans import EndedSpan
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
    return OtlpSpans(exporter)


def span(caller="", **fields):
    it = trace(caller, tracestate="a=b" if caller else "")
    given = {"name": "n", "span_id": "1" * 16, "parent_id": it.parent_id, **fields}
    return EndedSpan(trace=it, start_ns=1, end_ns=2, attributes={"x": 1}, **given)


def test_what_stands_around_spans_is_who_records(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    exporter = SpanExporter(resource("1.2"), "1.2")
    [of_resource] = exporter._translate_data([span(), span(CALLER)]).resource_spans
    [of_scope] = of_resource.scope_spans
    assert (of_scope.scope.name, of_scope.scope.version) == ("stepgraph", "1.2")
    assert [each.name for each in of_scope.spans] == ["n", "n"]
    named = {each.key: each.value.string_value for each in of_resource.resource.attributes}
    assert named["service.version"] == "1.2"
    exporter.shutdown()


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
