"""Spans of the work on attempts: an executor continues the traces of the runs that it works for.

Rules: as in `tracing.py`; and no payload, message or traceback goes into a span. What is current before an attempt is current
after it.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from stepgraph_client._functions import describe, key_of
from stepgraph_client.task_errors import Failed, ToolError
from stepgraph_client.tracing import API

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.trace import Span
    from opentelemetry.util.types import AttributeValue

    from stepgraph.v1 import task_pb2

_NOTHING: Final[AbstractContextManager[None]] = nullcontext()


def working_on(task: task_pb2.Task) -> AbstractContextManager[None]:
    """Continue the trace of an attempt inside: with a span such as "tool search" if this program records spans."""
    if API not in sys.modules:
        return _NOTHING
    return _continued(task)


@contextmanager
def _continued(task: task_pb2.Task) -> Iterator[None]:
    from opentelemetry import trace  # noqa: PLC0415  # see the rules
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
        TraceContextTextMapPropagator,
    )

    # This much of a task is always in this form, whatever propagators the program uses elsewhere.
    parent = TraceContextTextMapPropagator().extract(
        {"traceparent": task.traceparent, "tracestate": task.tracestate}
    )
    attributes: dict[str, AttributeValue] = {
        "stepgraph.run.id": task.task_id.partition("/")[0],
        "stepgraph.node.id": task.node_id,
        "stepgraph.task.id": task.task_id,
        "stepgraph.attempt": task.attempt,
    }
    with trace.get_tracer("stepgraph_client").start_as_current_span(
        describe(key_of(task.input)),
        context=parent,
        kind=trace.SpanKind.SERVER,
        attributes=attributes,
        # Both would put the text of the exception into the span.
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except asyncio.CancelledError:
            # The server wanted it so, or this program stops: no error.
            span.set_attribute("stepgraph.outcome", "cancelled")
            raise
        except BaseException as error:
            _set_error(span, error)
            raise


def _set_error(span: Span, error: BaseException) -> None:
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415  # it is loaded

    match error:
        case Failed():
            kind = error.code
        case ToolError():
            kind = "TOOL_REPORTS_ERROR"
        case _:
            kind = type(error).__qualname__
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, kind))
