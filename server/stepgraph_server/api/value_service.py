"""ValueService: large contents, in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from stepgraph.v1 import value_service_pb2
from stepgraph_server.api.errors import too_large
from stepgraph_server.api.references import value_not_found
from stepgraph_server.api.requests import namespace_of
from stepgraph_server.core.errors import Refused, Violation

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from stepgraph_server.api.ports import Context
    from stepgraph_server.api.requests import RequestChecker
    from stepgraph_server.config import LimitSettings, PageSettings
    from stepgraph_server.engine.clock import Clock
    from stepgraph_server.storage.values import Values


class ValueService:
    """See value_service.proto."""

    def __init__(
        self,
        *,
        values: Values,
        checker: RequestChecker,
        clock: Clock,
        limits: LimitSettings,
        pages: PageSettings,
    ) -> None:
        self._values = values
        self._checker = checker
        self._clock = clock
        self._limits = limits
        self._pages = pages

    async def ReadValue(
        self, request: value_service_pb2.ReadValueRequest, context: Context
    ) -> AsyncGenerator[value_service_pb2.ReadValueResponse, None]:
        """Send a content from an offset; what it is comes first, with the first bytes."""
        namespace = namespace_of(request)
        value = await self._values.stat(namespace, request.digest)
        if value is None:
            raise value_not_found(request.digest)
        if request.offset_bytes > value.size_bytes:
            raise _invalid("offset_bytes", f"is beyond the {value.size_bytes:,} bytes of the value")
        offset = request.offset_bytes
        response = value_service_pb2.ReadValueResponse(value=value)
        while True:
            chunk = await self._values.read(
                namespace, request.digest, offset, self._pages.max_chunk_bytes
            )
            if chunk is None:
                # It was there a moment ago: nobody referred to it, and its time was over.
                raise value_not_found(request.digest)
            response.chunk = chunk
            if chunk or response.HasField("value"):
                yield response
            offset += len(chunk)
            if not chunk or offset >= value.size_bytes:
                return
            response = value_service_pb2.ReadValueResponse()

    async def WriteValue(
        self, requests: object, context: Context
    ) -> value_service_pb2.WriteValueResponse:
        """Store a content. If the caller goes away before its end, nothing is stored."""
        parts = cast("AsyncIterator[value_service_pb2.WriteValueRequest]", requests)
        first = await anext(parts, None)
        if first is None or not first.HasField("header"):
            raise _invalid("header", "must come first")
        self._checker.check_header(first.header)
        value = await self._values.put(
            namespace_of(first.header),
            first.header.value,
            self._chunks(parts),
            create_time=self._clock.now(),
            max_bytes=self._limits.max_stored_value_bytes,
        )
        return value_service_pb2.WriteValueResponse(value=value)

    async def _chunks(
        self, parts: AsyncIterator[value_service_pb2.WriteValueRequest]
    ) -> AsyncGenerator[bytes, None]:
        async for part in parts:
            match part.WhichOneof("part"):
                case "chunk":
                    limit = self._pages.max_chunk_bytes
                    if len(part.chunk) > limit:
                        raise too_large("chunk", limit_bytes=limit, size_bytes=len(part.chunk))
                    yield part.chunk
                case "header":
                    raise _invalid("header", "must come first, and only once")
                case None:
                    message = "part: is unset, or a variant that this server does not know"
                    raise Refused("UNKNOWN_VARIANT", message, metadata={"field": "part"})


def _invalid(field: str, message: str) -> Refused:
    return Refused(
        "INVALID_REQUEST",
        f"{field}: {message}",
        violations=[Violation(path=field, message=message)],
    )
