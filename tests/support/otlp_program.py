"""A user's program that records its own spans: a provider, an executor and a client, as the documentation shows them.

Its spans go over the SDK's own exporter, so what a test sees is what the user's collector would.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def recording(endpoint: str, monkeypatch: object) -> Iterator[TracerProvider]:
    """Record the spans of this process for as long as the context lasts, and send them at its end."""
    provider = TracerProvider(resource=Resource({"service.name": "program"}))
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(endpoint, insecure=True), schedule_delay_millis=100)
    )
    # A process has one provider for ever, unless it is taken where OpenTelemetry keeps it.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # type: ignore[attr-defined]
    try:
        yield provider
    finally:
        provider.shutdown()
