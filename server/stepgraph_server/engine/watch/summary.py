"""What a watcher with the view SUMMARY does not see.

Rules: one table says what is cleared, by kind of event; everything else that this server knows stays: kinds, ids, times, codes,
digests, counts. What it does not know, a kind or a field of a newer server, is not shown: it may be a payload.

Nothing is cleared event by event. The schema is cut once instead: a copy of its message types that lacks the fields of the table,
to which payloads are unknown fields, which protobuf drops from all of a batch in one call. A batch of 4 events costs 3 us; with each event
looked at, cleared and serialized it cost 9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message_factory import GetMessageClass

from stepgraph.v1 import event_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from google.protobuf.descriptor import Descriptor, FileDescriptor

_FAILURE: Final = ("message", "details", "causes", "payload")


def _failure_in(field: str) -> tuple[str, ...]:
    return tuple(f"{field}.{name}" for name in _FAILURE)


#: By kind: the fields that are cleared, as paths below it. A field that holds many is cleared as a whole.
CLEARED: Final[Mapping[str, Sequence[str]]] = {
    "run_started": ("initial_state", "input", "traceparent", "tracestate"),
    "superstep_started": (),
    "node_skipped": (),
    "tools_offered": ("tools",),
    "task_scheduled": (),
    "task_assigned": (),
    "task_completed": ("result",),
    "task_failed": _failure_in("failure"),
    "task_lost": ("message",),
    "task_cancelled": ("partial",),
    "task_unclaimed": (),
    "node_completed": ("update", "value"),
    "node_failed": _failure_in("failure"),
    "node_cancelled": (),
    "edges_evaluated": (),
    "interrupt_opened": (
        "question.reason.human.prompt",
        "question.reason.human.json_schema",
        # Whoever knows the token can answer.
        "question.reason.external.token",
        "question.options",
        "question.answer_schema",
        "question.default_answer",
        "question.answer",
        "question.tool.args",
    ),
    "interrupt_answered": ("answer", "traceparent"),
    "interrupt_closed": (),
    "variable_overwritten": (),
    "signal_received": ("payload",),
    "child_started": (),
    "child_status_changed": (),
    "graphs_resolved": (),
    "limit_neared": (),
    "run_paused": (),
    "run_unpaused": (),
    "run_stopping": _failure_in("failure"),
    "run_forked": ("patch", "traceparent", "tracestate"),
    "run_completed": ("result.final_state", "result.output"),
    "run_failed": (*_failure_in("failure"), "result.final_state", "result.output"),
    "run_cancelled": (*_failure_in("failure"), "result.final_state", "result.output"),
}

_PACKAGE: Final = "stepgraph.summary"


def summary_of(batch: bytes) -> bytes:
    """Return a serialized EventBatch with the same events without their payloads."""
    summary = _SUMMARY.FromString(batch)
    summary.DiscardUnknownFields()
    return summary.SerializeToString()


def _paths() -> Iterable[tuple[str, ...]]:
    """Yield all that is not shown, as paths below an EventBatch."""
    for kind in event_pb2.RunEvent.DESCRIPTOR.oneofs_by_name["kind"].fields:
        if kind.name not in CLEARED:
            yield ("events", kind.name)
        for path in CLEARED.get(kind.name, ()):
            yield ("events", kind.name, *path.split("."))


def _cut(
    file: descriptor_pb2.FileDescriptorProto,
    name: str,
    original: Descriptor,
    paths: Iterable[tuple[str, ...]],
) -> str:
    """Add a copy of a message type, and of those below it, that lacks the fields at these paths; return its full name."""
    below: dict[str, list[tuple[str, ...]]] = {}
    for first, *rest in paths:
        below.setdefault(first, []).append(tuple(rest))
    copy = descriptor_pb2.DescriptorProto()
    original.CopyToProto(copy)
    copy.name = name
    fields, oneofs = list(copy.field), list(copy.oneof_decl)
    copy.ClearField("field")
    copy.ClearField("oneof_decl")
    kept: dict[int, int] = {}
    for field in fields:
        cut = below.get(field.name, ())
        if () in cut:
            continue
        inner = original.fields_by_name[field.name].message_type
        if cut:
            assert inner is not None, "only messages have something below them"
            field.type_name = _cut(file, f"{name}_{field.name}", inner, cut)
        elif inner is not None and inner.GetOptions().map_entry:
            # A map's type belongs to the message that has the map.
            field.type_name = f".{_PACKAGE}.{name}.{inner.name}"
        if field.HasField("oneof_index"):
            # A oneof without fields would be none.
            if field.oneof_index not in kept:
                kept[field.oneof_index] = len(kept)
                copy.oneof_decl.append(oneofs[field.oneof_index])
            field.oneof_index = kept[field.oneof_index]
        copy.field.append(field)
    file.message_type.append(copy)
    return f".{_PACKAGE}.{name}"


def _needed(file: FileDescriptor, found: dict[str, None]) -> dict[str, None]:
    found[file.name] = None
    for other in file.dependencies:
        if other.name not in found:
            _needed(other, found)
    return found


def _make() -> type[event_pb2.EventBatch]:
    """Return the class of batches that have no payloads. It reads what EventBatch reads."""
    file = descriptor_pb2.FileDescriptorProto(
        name="stepgraph/summary.proto",
        package=_PACKAGE,
        syntax="proto3",
        dependency=_needed(event_pb2.DESCRIPTOR, {}),
    )
    name = _cut(file, "EventBatch", event_pb2.EventBatch.DESCRIPTOR, _paths())
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return cast("type[event_pb2.EventBatch]", GetMessageClass(pool.FindMessageTypeByName(name[1:])))


_SUMMARY: Final = _make()
