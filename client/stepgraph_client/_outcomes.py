"""Outcomes that the server could not take, and the failures that are reported in their place. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import Message

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import failure_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the server takes; the defaults hold until its welcome says otherwise."""

    max_inline_value_bytes: int = 256 * 1024
    max_frame_bytes: int = 3 * 1024 * 1024


def fitting(data: bytes, limits: Limits) -> bytes:
    """Return a serialized AttemptOutcome as it is, or the failure to report if it is too large for the server."""
    if len(data) <= limits.max_inline_value_bytes and len(data) <= _room(limits):
        return data
    outcome = pb.AttemptOutcome.FromString(data)
    found = _oversize(outcome, limits.max_inline_value_bytes)
    limit = limits.max_inline_value_bytes
    if found is None and len(data) > _room(limits):
        found, limit = ("outcome", len(data)), _room(limits)
    if found is None:
        return data
    path, size = found
    failure = failure_pb2.Failure(
        code="PAYLOAD_TOO_LARGE",
        category=failure_pb2.FAILURE_CATEGORY_LIMIT,
        retryable=False,
        message=f"{path} has {size} bytes, of at most {limit}: store it, and return a reference",
        details={"field": path, "limit_bytes": str(limit), "size_bytes": str(size)},
    )
    return failed(outcome.task_id, outcome.attempt, failure).SerializeToString()


def refused(data: bytes, reject: pb.Reject) -> bytes:
    """Return the failure to report for an outcome in a frame that the server can't take."""
    outcome = pb.AttemptOutcome.FromString(data)
    failure = failure_pb2.Failure(
        code=reject.reason if reject.reason == "PAYLOAD_TOO_LARGE" else "RESULT_INVALID",
        category=failure_pb2.FAILURE_CATEGORY_TECHNICAL,
        retryable=False,
        message=f"the server can't take the result: {reject.reason}: {reject.message}",
        details={"field": reject.field},
    )
    return failed(outcome.task_id, outcome.attempt, failure).SerializeToString()


def failed(task_id: str, attempt: int, failure: failure_pb2.Failure) -> pb.AttemptOutcome:
    """Return the outcome of an attempt that failed."""
    return pb.AttemptOutcome(
        task_id=task_id, attempt=attempt, failed=pb.AttemptOutcome.Failed(failure=failure)
    )


def _room(limits: Limits) -> int:
    # What a frame adds around one outcome is a few bytes.
    return limits.max_frame_bytes - 64


def _oversize(message: Message, limit: int, path: str = "") -> tuple[str, int] | None:
    """Find a text or bytes above the limit, in a message of any type: the first path, and its size."""
    for descriptor, content in message.ListFields():
        here = f"{path}.{descriptor.name}" if path else descriptor.name
        is_map = descriptor.message_type is not None and (
            descriptor.message_type.GetOptions().map_entry
        )
        items = content.values() if is_map else content if descriptor.is_repeated else (content,)
        for item in items:
            if isinstance(item, Message):
                found = _oversize(item, limit, here) if item.ByteSize() > limit else None
                if found is not None:
                    return found
            elif isinstance(item, (str, bytes)):
                size = len(item.encode() if isinstance(item, str) else item)
                if size > limit:
                    return here, size
    return None
