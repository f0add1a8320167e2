"""Metrics on their way out: sent over OTLP, or waiting to be scraped.

Rules: imported only if metrics are on. Whoever exports has a thread of its own, and reads; nothing here runs on the loop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExportResult,
    PeriodicExportingMetricReader,
)

from stepgraph_server.telemetry import names
from stepgraph_server.telemetry.exporting import Reachability, quiet_exporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from opentelemetry.metrics import CallbackOptions
    from opentelemetry.sdk.metrics.export import MetricReader, MetricsData
    from opentelemetry.sdk.resources import Resource

    from stepgraph_server.telemetry.metrics import Metric, Reading

SCOPE: Final = "stepgraph"

_log = logging.getLogger(__name__)


class MetricExport:
    """Makes metrics readable by OpenTelemetry's readers."""

    def __init__(
        self, metrics: Iterable[Metric], who: Resource, readers: Sequence[MetricReader]
    ) -> None:
        # Not as the process's own provider: that one belongs to whoever runs the server inside a program of theirs.
        self._provider = MeterProvider(metric_readers=readers, resource=who, shutdown_on_exit=False)
        meter = self._provider.get_meter(SCOPE)
        for metric in metrics:
            make = (
                meter.create_observable_counter
                if metric.kind == "counter"
                else meter.create_observable_gauge
            )
            make(metric.name, [_observe(metric.read)], metric.unit, metric.meaning)

    def close(self, patience_s: float) -> None:
        """Send what there is once more, within a time. It blocks, so call it beside the loop.

        What could not be sent is lost, and nothing is raised for it: a collector that is away must not make the end of a server a failure.
        """
        try:
            self._provider.shutdown(timeout_millis=patience_s * 1_000)
        except Exception as error:  # noqa: BLE001  # the provider raises nothing more specific, after it has closed all that it could
            # At level debug, since the reader that could not send has said so in its own words.
            extra = {"action": names.COLLECTOR_LOST, "signal": "metrics", "error": str(error)}
            _log.debug("The last metrics were not all sent", extra=extra)


def _observe(
    read: Callable[[], Iterable[Reading]],
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    return lambda _: [Observation(value, labels) for labels, value in read()]


class OtlpMetrics(OTLPMetricExporter):
    """Sends metrics; that nobody takes them is said once."""

    def __init__(self) -> None:
        super().__init__()
        self._collector = Reachability("metrics")

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: object
    ) -> MetricExportResult:
        """Send them."""
        with quiet_exporter():
            result = super().export(metrics_data, timeout_millis, **kwargs)
        self._collector.note(taken=result is MetricExportResult.SUCCESS)
        return result


def otlp_reader(interval_s: float) -> MetricReader:
    """Return a reader that sends metrics every so often, and once more at the end."""
    return PeriodicExportingMetricReader(OtlpMetrics(), export_interval_millis=interval_s * 1_000)
