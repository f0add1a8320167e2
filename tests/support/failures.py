"""How a call failed, for assertions."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import grpc
import grpc.aio
from google.rpc import error_details_pb2, status_pb2

if TYPE_CHECKING:
    from collections.abc import Awaitable

Detail: TypeAlias = (
    error_details_pb2.ErrorInfo | error_details_pb2.BadRequest | error_details_pb2.RetryInfo
)


Stream: TypeAlias = (
    "grpc.aio.UnaryStreamCall[object, object] | grpc.aio.StreamStreamCall[object, object]"
)


class Failure:
    """A status with its details, by the names of their types."""

    def __init__(self, error: grpc.RpcError) -> None:
        assert isinstance(error, grpc.aio.AioRpcError | grpc.Call)
        self.code = error.code()
        self.message = error.details()
        trailers = dict(error.trailing_metadata() or ())
        packed = trailers["grpc-status-details-bin"]
        assert isinstance(packed, bytes)
        status = status_pb2.Status.FromString(packed)
        assert (status.code, status.message) == (self.code.value[0], self.message)
        self.details: dict[str, Detail] = {}
        for part in status.details:
            name = part.TypeName().removeprefix("google.rpc.")
            detail: Detail = getattr(error_details_pb2, name)()
            assert part.Unpack(detail)
            assert name not in self.details, "each type of detail comes at most once"
            self.details[name] = detail
        info = self.details["ErrorInfo"]
        assert isinstance(info, error_details_pb2.ErrorInfo)
        assert info.domain == "stepgraph"
        self.reason = info.reason
        self.metadata = dict(info.metadata)


async def failure_of(call: Awaitable[object] | Stream) -> Failure:
    """Return how a call fails: an awaitable one, or a stream that is read to its end."""
    try:
        if isinstance(call, grpc.aio.UnaryStreamCall | grpc.aio.StreamStreamCall):
            # Whoever has read before can't iterate now.
            while await call.read() is not grpc.aio.EOF:
                pass
        else:
            await call
    except grpc.RpcError as error:
        return Failure(error)
    message = "the call succeeded"
    raise AssertionError(message)
