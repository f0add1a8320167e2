"""A collector that is real at the wire: it takes traces and metrics over OTLP and gRPC, and tests ask it for what it got.

Every wait is bounded. A collector may be opened again at its address, for what happens while there is none.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc.aio
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

PATIENCE_S = 20.0


@dataclass(frozen=True)
class Seen:
    """A span as it came."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    start_ns: int
    end_ns: int
    error: str
    attributes: dict[str, object]
    events: list[tuple[str, dict[str, object]]]
    links: list[tuple[str, str]]
    resource: dict[str, object]
    trace_state: str

    def __getitem__(self, name: str) -> object:
        return self.attributes.get(name)


class Collector:
    """What came so far, in the order in which it came."""

    def __init__(self) -> None:
        self.address = ""
        self.spans: list[Seen] = []
        self.metrics: list[dict[str, Metric]] = []
        #: The size of everything that came, and all of it as text to search for what must not be there.
        self.bytes = 0
        self.raw: list[bytes] = []
        self._came = asyncio.Condition()

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}"

    async def take_spans(self, request: trace_service_pb2.ExportTraceServiceRequest) -> None:
        async with self._came:
            self.raw.append(request.SerializeToString())
            for of_resource in request.resource_spans:
                resource = _plain(of_resource.resource.attributes)
                for of_scope in of_resource.scope_spans:
                    self.spans += [_seen(span, resource) for span in of_scope.spans]
            self._came.notify_all()

    async def take_metrics(self, request: metrics_service_pb2.ExportMetricsServiceRequest) -> None:
        async with self._came:
            self.raw.append(request.SerializeToString())
            self.metrics.append(
                {
                    metric.name: metric
                    for of_resource in request.resource_metrics
                    for of_scope in of_resource.scope_metrics
                    for metric in of_scope.metrics
                }
            )
            self._came.notify_all()

    async def until(self, holds: Callable[[Collector], bool]) -> None:
        """Return once something holds."""
        try:
            async with asyncio.timeout(PATIENCE_S), self._came:
                await self._came.wait_for(lambda: holds(self))
        except TimeoutError:
            message = "\n".join(["it never held; these came:", *(span.name for span in self.spans)])
            raise AssertionError(message) from None

    async def named(self, name: str, count: int = 1) -> list[Seen]:
        """Return the spans of a name once there are so many."""
        await self.until(lambda it: len(it.of(name)) >= count)
        return self.of(name)

    async def one(self, name: str) -> Seen:
        """Return the only span of a name, once it has come."""
        [span] = await self.named(name)
        return span

    def of(self, name: str) -> list[Seen]:
        return [span for span in self.spans if span.name == name]

    def tree(self) -> list[str]:
        """Return all spans, each indented below its parent, in the order in which they began."""
        by_id = {span.span_id: span for span in self.spans}
        children: dict[str, list[Seen]] = {}
        for span in sorted(self.spans, key=lambda each: each.start_ns):
            parent = span.parent_id if span.parent_id in by_id else ""
            children.setdefault(parent, []).append(span)

        def lines(parent: str, depth: int) -> Iterable[str]:
            for span in children.get(parent, []):
                yield "  " * depth + span.name
                yield from lines(span.span_id, depth + 1)

        return list(lines("", 0))


@asynccontextmanager
async def collecting(collector: Collector | None = None) -> AsyncIterator[Collector]:
    """Open a collector; one that was open before gets its address again."""
    made = collector or Collector()
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    # Generated code has no types.
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(_Traces(made), server)  # type: ignore[no-untyped-call]
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(_Metrics(made), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port(made.address or "127.0.0.1:0")
    made.address = f"127.0.0.1:{port}"
    await server.start()
    try:
        yield made
    finally:
        await server.stop(None)


class _Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    async def Export(  # noqa: N802
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: object
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        await self._collector.take_spans(request)
        return trace_service_pb2.ExportTraceServiceResponse()


class _Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    async def Export(  # noqa: N802
        self, request: metrics_service_pb2.ExportMetricsServiceRequest, context: object
    ) -> metrics_service_pb2.ExportMetricsServiceResponse:
        await self._collector.take_metrics(request)
        return metrics_service_pb2.ExportMetricsServiceResponse()


def _seen(span: WireSpan, resource: dict[str, object]) -> Seen:
    return Seen(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=WireSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        error=span.status.message,
        attributes=_plain(span.attributes),
        events=[(event.name, _plain(event.attributes)) for event in span.events],
        links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        resource=resource,
        trace_state=span.trace_state,
    )


def _plain(attributes: Iterable[KeyValue]) -> dict[str, object]:
    return {attribute.key: _value(attribute.value) for attribute in attributes}


def _value(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None
