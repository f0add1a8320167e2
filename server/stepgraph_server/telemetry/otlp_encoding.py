"""Spans as OTLP has them on the wire.

Rules: as `core.wire` does it, bytes are put together from bytes: most attributes of a span are those of many others, so each is encoded
once and kept. Built attribute by attribute, as OpenTelemetry's own encoder does, a span costs eight times as much.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, assert_never

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, SpanFlags, Status

from stepgraph_server.core import wire

if TYPE_CHECKING:
    from stepgraph_server.telemetry.spans import Attributes, EndedSpan, SpanEvent

MAX_KEPT_ATTRIBUTES: Final = 8_192
"""Ids of tasks are never asked for again; what is common to many is, and stays."""

_ATTRIBUTES_FIELD: Final = Span.ATTRIBUTES_FIELD_NUMBER
_SAMPLED: Final = 1
_HAS_REMOTE: Final = SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_IS_REMOTE: Final = SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK


def encode_span(span: EndedSpan) -> bytes:
    """Return a serialized Span."""
    trace = span.trace
    # Of all spans only that of the run can have a parent in another process.
    is_remote = bool(span.parent_id) and span.parent_id == trace.parent_id
    head = Span(
        trace_id=bytes.fromhex(trace.trace_id),
        span_id=bytes.fromhex(span.span_id),
        parent_span_id=bytes.fromhex(span.parent_id),
        trace_state=trace.tracestate,
        flags=_SAMPLED | _HAS_REMOTE | (_IS_REMOTE if is_remote else 0),
        name=span.name,
        kind=Span.SPAN_KIND_CLIENT if span.is_remote_call else Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
        events=[_event(event) for event in span.events],
        links=[_link(traceparent) for traceparent in span.links],
    )
    if span.error:
        # The code alone: a message may have been made of what a run works on.
        head.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message=span.error))
    attributes = [_attribute(name, value) for name, value in span.attributes.items()]
    return b"".join([head.SerializeToString(), *attributes])


@lru_cache(maxsize=MAX_KEPT_ATTRIBUTES)
def _attribute(name: str, value: str | int | tuple[str, ...]) -> bytes:
    return wire.length_delimited(_ATTRIBUTES_FIELD, _key_value(name, value).SerializeToString())


def _key_value(name: str, value: str | int | tuple[str, ...]) -> KeyValue:
    match value:
        case str():
            given = AnyValue(string_value=value)
        case int():
            given = AnyValue(int_value=value)
        case tuple():
            texts = [AnyValue(string_value=text) for text in value]
            given = AnyValue(array_value=ArrayValue(values=texts))
        case _:
            assert_never(value)
    return KeyValue(key=name, value=given)


def _event(event: SpanEvent) -> Span.Event:
    return Span.Event(
        name=event.name, time_unix_nano=event.time_ns, attributes=_key_values(event.attributes)
    )


def _link(traceparent: str) -> Span.Link:
    _, trace_id, span_id, flags = traceparent.split("-")[:4]
    return Span.Link(
        trace_id=bytes.fromhex(trace_id),
        span_id=bytes.fromhex(span_id),
        flags=(int(flags, 16) & _SAMPLED) | _HAS_REMOTE | _IS_REMOTE,
    )


def _key_values(attributes: Attributes) -> list[KeyValue]:
    return [_key_value(name, value) for name, value in attributes.items()]
