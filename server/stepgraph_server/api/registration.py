"""How RPCs are served: handlers made of the descriptors of services, by one table.

Rules: each RPC of each service has a line in the table, and a test walks the descriptors, so a new RPC without one can't be
built. Whatever a servicer raises becomes a status here and nowhere else; whatever is wrong with a request by itself is
refused here, before a servicer sees it. Streams are async generators, since wrappers of others (instrumentation, for one)
know how to wrap those.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypeAlias, assert_never, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from stepgraph_server.core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
        Iterator,
        Mapping,
    )

    from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
    from google.protobuf.message import Message

    from stepgraph_server.api.changes import Changes
    from stepgraph_server.api.errors import StatusMaker
    from stepgraph_server.api.gate import Gate, Stay
    from stepgraph_server.api.ports import Context
    from stepgraph_server.api.requests import RequestChecker

    Response: TypeAlias = Message | bytes
    Single: TypeAlias = Callable[[object, Context], Awaitable[Response]]
    Stream: TypeAlias = Callable[[object, Context], AsyncGenerator[Response, None]]

Kind: TypeAlias = Literal["read", "change", "upload", "watch", "session", "probe", "unsupported"]

#: What each RPC is. `read`s and `upload`s are short; a `change` outlives its caller; `watch`es and `session`s stay until
#: somebody ends them; a `probe` is answered while the server stops, and its request is not ours to check.
KINDS: Final[Mapping[str, Kind]] = {
    "GraphService/RegisterGraph": "change",
    "GraphService/ValidateGraph": "read",
    "GraphService/GetGraph": "read",
    "GraphService/ListGraphs": "read",
    "GraphService/ListGraphVersions": "read",
    "GraphService/RenderGraph": "read",
    "RunService/StartRun": "change",
    "RunService/StartAndWatchRun": "watch",
    "RunService/GetRun": "read",
    "RunService/ListRuns": "read",
    "RunService/WatchRun": "watch",
    "RunService/WatchRuns": "watch",
    "RunService/GetRunState": "read",
    "RunService/CancelRun": "change",
    "RunService/PauseRun": "change",
    "RunService/UnpauseRun": "change",
    "RunService/SignalRun": "change",
    "RunService/ForkRun": "change",
    "RunService/RetryRun": "change",
    "RunService/ExplainRun": "read",
    "RunService/DeleteRun": "unsupported",
    "InterruptService/AnswerInterrupt": "change",
    "InterruptService/GetInterrupt": "read",
    "InterruptService/ListInterrupts": "read",
    "ExecutorService/Connect": "session",
    "ExecutorService/ReadTaskInput": "read",
    "ExecutorService/ListExecutors": "read",
    "ValueService/ReadValue": "read",
    "ValueService/WriteValue": "upload",
    "Health/Check": "probe",
    "Health/List": "unsupported",
    "Health/Watch": "probe",
}

#: Their frames are read by the session itself, which answers for those that it can't read.
RAW_REQUESTS: Final = frozenset({"ExecutorService/Connect"})


class Undecodable:
    """In place of a request whose bytes are no message of its type."""


_UNDECODABLE: Final = Undecodable()


def to_bytes(response: Response) -> bytes:
    """Serialize a response, unless it comes serialized: watches and sessions splice stored bytes."""
    return response if isinstance(response, bytes) else response.SerializeToString()


def _reader(method: MethodDescriptor, name: str) -> Callable[[bytes], object]:
    if name in RAW_REQUESTS:
        return bytes
    parse = GetMessageClass(method.input_type).FromString

    def read(data: bytes) -> object:
        # grpc would answer an exception here with a status of its own, which has no reason.
        try:
            return parse(data)
        except DecodeError:
            return _UNDECODABLE

    return read


class Registration:
    """Makes the handlers of services."""

    def __init__(
        self, *, gate: Gate, changes: Changes, checker: RequestChecker, statuses: StatusMaker
    ) -> None:
        self._gate = gate
        self._changes = changes
        self._checker = checker
        self._statuses = statuses

    def handlers(self, service: ServiceDescriptor, servicer: object) -> grpc.GenericRpcHandler:
        """Return the handlers of one service. `servicer` has a method for each RPC that is supported.

        Raises:
            KeyError: An RPC has no line in the table.
            AttributeError: The servicer lacks a method.
        """
        methods = cast("Iterable[MethodDescriptor]", service.methods)
        return grpc.method_handlers_generic_handler(
            service.full_name,
            {method.name: self._handler(service.name, method, servicer) for method in methods},
        )

    def unknown_methods(self) -> grpc.GenericRpcHandler:
        """Return the handler of all methods that no other handler knows; add it last."""
        return _UnknownMethods(self._statuses)

    def _handler(
        self, service_name: str, method: MethodDescriptor, servicer: object
    ) -> grpc.RpcMethodHandler[object, Response]:
        name = f"{service_name}/{method.name}"
        kind = KINDS[name]
        read = _reader(method, name)
        if method.server_streaming:
            stream = self._stream(name, kind, getattr(servicer, method.name))
            if method.client_streaming:
                return grpc.stream_stream_rpc_method_handler(stream, read, to_bytes)
            return grpc.unary_stream_rpc_method_handler(stream, read, to_bytes)
        if kind == "unsupported":
            single = self._single(name, kind, _unsupported(method.name))
        else:
            single = self._single(name, kind, getattr(servicer, method.name))
        if method.client_streaming:
            return grpc.stream_unary_rpc_method_handler(single, read, to_bytes)
        return grpc.unary_unary_rpc_method_handler(single, read, to_bytes)

    def _single(self, name: str, kind: Kind, method: Single) -> Single:
        async def serve(request: object, context: Context) -> Response:
            try:
                with self._inside(kind):
                    self._check(kind, request)
                    if kind == "change":
                        return await self._changes.carry_out(lambda: method(request, context))
                    return await method(_decoded(request) if kind == "upload" else request, context)
            except grpc.aio.AbortError:
                raise
            except Exception as error:  # noqa: BLE001  # here, and below, any error becomes a status
                await self._abort(context, error, name)

        return serve

    def _stream(self, name: str, kind: Kind, method: Stream) -> Stream:
        async def serve(request: object, context: Context) -> AsyncGenerator[Response, None]:
            stay: Stay | None = None
            try:
                with self._inside(kind) as stay:
                    self._check(kind, request)
                    # Closed at once, not when the garbage is collected: a watch holds a place in the hub.
                    async with aclosing(method(request, context)) as responses:
                        async for response in responses:
                            yield response
            except asyncio.CancelledError:
                # Somebody at the other end went away; or we want the stream to end, and say so.
                if stay is None or not stay.is_ended:
                    raise
                stay.forgive()
                await self._abort(context, self._gate.shutting_down(), name)
            except grpc.aio.AbortError:
                raise
            except Exception as error:  # noqa: BLE001
                await self._abort(context, error, name)

        return serve

    @contextmanager
    def _inside(self, kind: Kind) -> Iterator[Stay | None]:
        match kind:
            case "probe":
                yield None
            case "watch" | "session":
                with self._gate.stream(kind) as stay:
                    yield stay
            case "read" | "change" | "upload" | "unsupported":
                with self._gate.call():
                    yield None
            case _:
                assert_never(kind)

    def _check(self, kind: Kind, request: object) -> None:
        if isinstance(request, Undecodable):
            raise _undecodable()
        if kind in {"read", "change", "watch"}:
            self._checker.check(cast("Message", request))

    async def _abort(self, context: Context, error: Exception, name: str) -> NoReturn:
        status = self._statuses.status_of(error, name)
        await context.abort(status.code, status.message, status.trailers)


def _undecodable() -> Refused:
    message = "the request can't be decoded: it is not a message of its type"
    return Refused("INVALID_REQUEST", message, metadata={"field": ""})


async def _decoded(requests: object) -> AsyncGenerator[object, None]:
    # What grpc hands over for a stream of requests.
    async for request in cast("AsyncIterator[object]", requests):
        if isinstance(request, Undecodable):
            raise _undecodable()
        yield request


def _unsupported(method_name: str) -> Single:
    async def refuse(_request: object, _context: Context) -> Response:
        raise Refused(
            "NOT_YET_SUPPORTED",
            f"{method_name} is not supported yet by this server",
            metadata={"field": method_name},
        )

    return refuse


class _UnknownMethods(grpc.GenericRpcHandler):
    """Answers for methods that nobody else knows. A stream on both sides, since it must not wait for a request."""

    def __init__(self, statuses: StatusMaker) -> None:
        self._statuses = statuses

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[object, bytes]:
        name = handler_call_details.method

        async def refuse(_requests: object, context: Context) -> AsyncGenerator[bytes, None]:
            refused = Refused("METHOD_NOT_FOUND", f"there is no method {name}")
            status = self._statuses.status_of(refused, name)
            await context.abort(status.code, status.message, status.trailers)
            yield b""  # never reached; it makes this a generator

        return grpc.stream_stream_rpc_method_handler(refuse)
