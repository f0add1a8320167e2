"""Metrics on their way out."""

from __future__ import annotations

import logging

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource

from stepgraph_server.telemetry.metric_export import MetricExport, OtlpMetrics, otlp_reader
from stepgraph_server.telemetry.metrics import Metric

METRICS = [
    Metric(
        name="stepgraph.results",
        kind="counter",
        unit="{result}",
        meaning="Results",
        labels=("verdict",),
        read=lambda: [({"verdict": "stale"}, 3)],
    ),
    Metric(
        name="stepgraph.watchers",
        kind="gauge",
        unit="{watcher}",
        meaning="Watchers",
        read=lambda: [({}, 2)],
    ),
]


def test_each_metric_becomes_an_instrument_that_is_read_when_somebody_asks():
    reader = InMemoryMetricReader()
    export = MetricExport(METRICS, Resource({"service.name": "s"}), [reader])
    [of_resource] = reader.get_metrics_data().resource_metrics
    [of_scope] = of_resource.scope_metrics
    seen = {metric.name: metric for metric in of_scope.metrics}
    [results] = seen["stepgraph.results"].data.data_points
    assert (results.value, dict(results.attributes)) == (3, {"verdict": "stale"})
    assert seen["stepgraph.results"].data.is_monotonic
    assert seen["stepgraph.results"].unit == "{result}"
    [watchers] = seen["stepgraph.watchers"].data.data_points
    assert watchers.value == 2
    assert of_resource.resource.attributes["service.name"] == "s"
    export.close(1.0)


def test_that_nobody_takes_them_is_said_once(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    caplog.set_level(logging.INFO)
    exporter = OtlpMetrics()
    for _ in range(2):
        assert exporter.export(MetricsData(resource_metrics=[])) is MetricExportResult.FAILURE
    exporter.shutdown()
    [said] = caplog.records
    assert (said.action, said.signal) == ("collector.lost", "metrics")


@pytest.mark.parametrize("interval_s", [0.5, 60.0])
def test_the_interval_is_that_of_the_settings(interval_s, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    reader = otlp_reader(interval_s)
    assert reader._export_interval_millis == interval_s * 1_000
    MetricExport([], Resource({}), [reader]).close(1.0)


class Stuck(InMemoryMetricReader):
    """Takes longer than it may, as one does that sends to a collector that is away."""

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: object) -> None:
        super().shutdown(timeout_millis, **kwargs)
        message = "no collector"
        raise TimeoutError(message)


def test_a_reader_that_can_not_send_its_last_does_not_make_the_end_a_failure(caplog):
    """All readers are closed, and the log has why."""
    caplog.set_level(logging.DEBUG, "stepgraph_server")
    others = InMemoryMetricReader()
    MetricExport(METRICS, Resource({}), [Stuck(), others]).close(1.0)
    [said] = caplog.records
    assert (said.action, said.signal) == ("collector.lost", "metrics")
    assert "Stuck: TimeoutError('no collector')" in said.error
