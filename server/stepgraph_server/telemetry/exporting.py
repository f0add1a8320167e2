"""Spans and metrics on their way to a collector, over OTLP.

Rules: this module, `otlp_encoding`, `metric_export` and `scraping` are the only ones that import OpenTelemetry's SDK, and they are imported only if something is
recorded. That a collector is away is said once, and once that it is back; what the exporters would say each time is dropped.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from opentelemetry import context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from stepgraph_server.core import wire
from stepgraph_server.telemetry import names
from stepgraph_server.telemetry.otlp_encoding import encode_span

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextvars import Token

    from opentelemetry.context import Context

    from stepgraph_server.telemetry.spans import EndedSpan

_log = logging.getLogger(__name__)

SERVICE_NAME: Final = "stepgraph"
_EXPORTER_LOGGERS: Final = (
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.sdk.metrics._internal.export",
)


def resource(version: str) -> Resource:
    """Return who records. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go before what is said here."""
    given = Resource.create()
    named = dict(given.attributes)
    if str(named.get("service.name", "")).startswith("unknown_service"):
        del named["service.name"]
    ours = {"service.name": SERVICE_NAME, "service.version": version}
    return Resource({**ours, **named}, given.schema_url)


class Reachability:
    """Whether a collector takes what is sent; changes are said, and nothing else."""

    def __init__(self, signal: str) -> None:
        self._signal: Final = signal
        self._is_away = False

    def note(self, *, taken: bool) -> None:
        """Note whether something was taken."""
        if taken == (not self._is_away):
            return
        self._is_away = not taken
        extra = {
            "action": names.COLLECTOR_REGAINED if taken else names.COLLECTOR_LOST,
            "signal": self._signal,
        }
        if taken:
            _log.info("The collector takes what is sent again", extra=extra)
        else:
            _log.warning("The collector can't be reached; what it should get is lost", extra=extra)


class _Ours(threading.local):
    """Whether this thread is sending for us."""

    sending = False


_ours = _Ours()


class quiet_exporter:  # noqa: N801  # reads as a statement
    """Inside, what OpenTelemetry's exporters log is dropped, of this thread only: those of others have their own logs."""

    def __init__(self) -> None:
        self._token: Token[Context] | None = None

    def __enter__(self) -> None:
        for name in _EXPORTER_LOGGERS:
            logger = logging.getLogger(name)
            if _not_ours not in logger.filters:
                logger.addFilter(_not_ours)
        _ours.sending = True
        # Where gRPC is instrumented, sending spans would make spans, for ever.
        key = context._SUPPRESS_INSTRUMENTATION_KEY  # noqa: SLF001  # it has no public name
        suppressed = context.set_value(key, True)  # noqa: FBT003
        self._token = context.attach(suppressed)

    def __exit__(self, *_: object) -> None:
        _ours.sending = False
        if self._token is not None:
            context.detach(self._token)


def _not_ours(_: logging.LogRecord) -> bool:
    return not _ours.sending


class SpanExporter(OTLPSpanExporter):
    """OpenTelemetry's exporter, with its channel, retries and variables; only that our spans are encoded by ourselves."""

    def __init__(self, who: Resource, version: str) -> None:
        super().__init__()
        # What stands around all spans, encoded once, by the encoder of OpenTelemetry.
        scope = InstrumentationScope("stepgraph", version)
        nobody = SpanContext(0, 0, is_remote=False)
        empty = ReadableSpan("", nobody, resource=who, instrumentation_scope=scope)
        [around] = encode_spans([empty]).resource_spans
        [scope_spans] = around.scope_spans
        scope_spans.ClearField("spans")
        self._scope_spans: Final = scope_spans.SerializeToString()
        around.ClearField("scope_spans")
        self._resource_spans: Final = around.SerializeToString()

    def _translate_data(  # type: ignore[override]  # what it is given is ours
        self, data: Sequence[EndedSpan]
    ) -> ExportTraceServiceRequest:
        spans = wire.join_repeated(ScopeSpans.SPANS_FIELD_NUMBER, map(encode_span, data))
        scopes = wire.length_delimited(
            ResourceSpans.SCOPE_SPANS_FIELD_NUMBER, self._scope_spans + spans
        )
        whole = wire.length_delimited(
            ExportTraceServiceRequest.RESOURCE_SPANS_FIELD_NUMBER, self._resource_spans + scopes
        )
        return ExportTraceServiceRequest.FromString(whole)


class OtlpSpans:
    """Sends spans. The port `SpanSink`."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._collector = Reachability("traces")
        self._is_closed = False

    def send(self, spans: Sequence[EndedSpan]) -> bool:
        """Send them; false if nobody took them."""
        if self._is_closed:
            return False
        with quiet_exporter():
            # It hands them to `_translate_data`, and looks at nothing but their number.
            result = self._exporter.export(spans)  # type: ignore[arg-type]
        taken = result is SpanExportResult.SUCCESS
        self._collector.note(taken=taken)
        return taken

    def close(self) -> None:
        """Cut off what is being sent."""
        if not self._is_closed:
            self._is_closed = True
            self._exporter.shutdown()
