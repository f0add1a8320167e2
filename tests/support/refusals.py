"""Statuses as a stepgraph server sends them, for servers that tests make up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Generated base classes type the context as this; see the stubs.
Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A status to end a call with. `late`: only after the call was carried out, as if its response was lost."""

    code: grpc.StatusCode
    reason: str = ""
    message: str = "no"
    metadata: Mapping[str, str] = field(default_factory=dict)
    violations: Sequence[tuple[str, str, str]] = ()
    retry_after_s: float | None = None
    late: bool = False


LOST = Refusal(code=grpc.StatusCode.UNAVAILABLE, message="connection reset")


async def end(context: Context, refusal: Refusal) -> None:
    """End a call with a status and its details."""
    details: list[any_pb2.Any] = []
    if refusal.reason:
        info = error_details_pb2.ErrorInfo(
            reason=refusal.reason, domain="stepgraph", metadata=dict(refusal.metadata)
        )
        details.append(_packed(info))
    if refusal.violations:
        bad = error_details_pb2.BadRequest()
        for path, message, reason in refusal.violations:
            bad.field_violations.add(field=path, description=message, reason=reason)
        details.append(_packed(bad))
    if refusal.retry_after_s is not None:
        delay = duration_pb2.Duration(nanos=int(refusal.retry_after_s * 1e9))
        details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
    status = status_pb2.Status(code=refusal.code.value[0], message=refusal.message, details=details)
    trailers = (("grpc-status-details-bin", status.SerializeToString()),) if details else ()
    await context.abort(refusal.code, refusal.message, trailers)


def _packed(message: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


async def lose(context: Context, late: Refusal | None) -> None:
    if late is not None:
        await end(context, late)
