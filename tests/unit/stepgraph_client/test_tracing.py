"""The trace of the program that uses the client, handed on with calls."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stepgraph_client import tracing

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def ended(monkeypatch):
    """A program that records: the spans that have ended."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter.get_finished_spans
    provider.shutdown()


def test_a_call_outside_of_a_trace_says_nothing():
    assert tracing.metadata() is None


def test_a_call_tells_the_server_its_trace(ended):
    with trace.get_tracer("t").start_as_current_span("caller") as span:
        given = dict(tracing.metadata())
    assert given["traceparent"].split("-")[2] == f"{span.get_span_context().span_id:016x}"


def test_names_that_grpc_refuses_are_written_small(monkeypatch):
    monkeypatch.setattr(propagate, "inject", lambda carrier: carrier.update({"X-B3-TraceId": "1"}))
    assert tracing.metadata() == (("x-b3-traceid", "1"),)


def test_a_program_that_does_not_trace_loads_nothing():
    text = (
        "import sys; from stepgraph_client import tracing, _task_spans;"
        "tracing.metadata(); _task_spans.working_on(None).__enter__();"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    given = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True, text=True)
    assert given.stdout.strip() == "[]"
