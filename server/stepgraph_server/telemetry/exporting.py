"""Spans and metrics on their way to a collector, over OTLP.

Rules: this module and `metrics.py` are the only ones that import OpenTelemetry's SDK, and they are imported only if something is
recorded. That a collector is away is said once, and once that it is back; what the exporters would say each time is dropped.
"""

from __future__ import annotations

import logging
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from opentelemetry import context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.span import TraceState

from stepgraph_server.telemetry import names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextvars import Token

    from opentelemetry.context import Context

    from stepgraph_server.telemetry.spans import EndedSpan, SpanEvent

_log = logging.getLogger(__name__)

SERVICE_NAME: Final = "stepgraph"
_EXPORTER_LOGGERS: Final = (
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.sdk.metrics._internal.export",
)
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


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


class OtlpSpans:
    """Sends spans. The port `SpanSink`."""

    def __init__(
        self, who: Resource, version: str, exporter: OTLPSpanExporter | None = None
    ) -> None:
        self._exporter = exporter or OTLPSpanExporter()
        self._resource = who
        self._scope = InstrumentationScope("stepgraph", version)
        self._collector = Reachability("traces")
        self._is_closed = False

    def send(self, spans: Sequence[EndedSpan]) -> bool:
        """Send them; false if nobody took them."""
        if self._is_closed:
            return False
        readable = [self._readable(span) for span in spans]
        with quiet_exporter():
            taken = self._exporter.export(readable) is SpanExportResult.SUCCESS
        self._collector.note(taken=taken)
        return taken

    def close(self) -> None:
        """Cut off what is being sent."""
        if not self._is_closed:
            self._is_closed = True
            self._exporter.shutdown()

    def _readable(self, span: EndedSpan) -> ReadableSpan:
        trace = span.trace
        trace_id = int(trace.trace_id, 16)
        state = _tracestate(trace.tracestate)
        context = SpanContext(
            trace_id,
            int(span.span_id, 16),
            is_remote=False,
            trace_flags=_SAMPLED,
            trace_state=state,
        )
        parent = None
        if span.parent_id:
            # Of all spans only that of the run can have a parent in another process.
            is_remote = span.parent_id == trace.parent_id
            parent = SpanContext(
                trace_id,
                int(span.parent_id, 16),
                is_remote=is_remote,
                trace_flags=_SAMPLED,
                trace_state=state,
            )
        return ReadableSpan(
            name=span.name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=span.attributes,
            events=[_event(event) for event in span.events],
            links=[_link(traceparent) for traceparent in span.links],
            kind=SpanKind.CLIENT if span.is_remote_call else SpanKind.INTERNAL,
            # The code alone: a message may have been made of what a run works on.
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope,
        )


def _event(event: SpanEvent) -> Event:
    return Event(event.name, event.attributes, event.time_ns)


def _link(traceparent: str) -> Link:
    _, trace_id, span_id, flags = traceparent.split("-")[:4]
    sampled = TraceFlags(int(flags, 16) & TraceFlags.SAMPLED)
    return Link(
        SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=sampled)
    )


@lru_cache(maxsize=64)
def _tracestate(text: str) -> TraceState:
    return TraceState.from_header([text]) if text else TraceState()
