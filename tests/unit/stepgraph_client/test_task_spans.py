"""Spans of the work on attempts."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stepgraph.v1.task_pb2 import Task
from stepgraph_client import Failed, ToolError
from stepgraph_client._task_spans import working_on

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TASK = Task(
    task_id="r1/1/a/t0/e0",
    attempt=2,
    node_id="a",
    traceparent=CALLER,
    tracestate="a=b",
    input={"tool": {"name": "search"}},
)


@pytest.fixture
def ended(monkeypatch):
    """A program that records: the spans that have ended."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter.get_finished_spans
    provider.shutdown()


def test_work_has_a_span_of_its_own_under_its_attempt(ended):
    with working_on(TASK):
        inside = trace.get_current_span().get_span_context()
    [span] = ended()
    assert span.name == "tool search"
    assert f"{span.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert f"{inside.trace_id:032x}" == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert inside.trace_state.get("a") == "b"
    assert span.kind is trace.SpanKind.SERVER
    assert dict(span.attributes) == {
        "stepgraph.run.id": "r1",
        "stepgraph.node.id": "a",
        "stepgraph.task.id": "r1/1/a/t0/e0",
        "stepgraph.attempt": 2,
    }
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Failed("RATE_LIMITED", "a secret"), "RATE_LIMITED"),
        (ToolError("a secret"), "TOOL_REPORTS_ERROR"),
        (ValueError("a secret"), "ValueError"),
    ],
)
def test_an_error_is_named_and_never_quoted(ended, error, kind):
    with pytest.raises(type(error)), working_on(TASK):
        raise error
    [span] = ended()
    assert (span.status.status_code, span.status.description) == (trace.StatusCode.ERROR, kind)
    assert span.attributes["error.type"] == kind
    assert span.events == ()


def test_work_that_was_cancelled_is_no_error(ended):
    with pytest.raises(asyncio.CancelledError), working_on(TASK):
        raise asyncio.CancelledError
    [span] = ended()
    assert span.status.status_code is trace.StatusCode.UNSET
    assert span.attributes["stepgraph.outcome"] == "cancelled"


def test_without_a_provider_the_trace_is_still_current():
    with working_on(TASK):
        assert f"{trace.get_current_span().get_span_context().span_id:016x}" == "00f067aa0ba902b7"
    with working_on(Task(task_id="r1/t")):
        assert not trace.get_current_span().get_span_context().is_valid
