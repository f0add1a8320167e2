"""Requests that are sent again: the same request_id gives the first response.

Rules: a request id is looked up first, and stored in the same append as what it did. A request that changed nothing has no
append, so its response is kept by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from stepgraph_server.core.errors import Refused
from stepgraph_server.core.instants import SECOND
from stepgraph_server.storage.errors import RequestIdReused, StorageError
from stepgraph_server.storage.records import RequestRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

    from stepgraph_server.core.instants import Instant
    from stepgraph_server.engine.callers import RequestKey
    from stepgraph_server.engine.clock import Clock
    from stepgraph_server.engine.live import FutureReply
    from stepgraph_server.storage.requests import Requests

_T = TypeVar("_T", bound="Message")


class Repeats:
    """What requests were answered before."""

    def __init__(self, requests: Requests, clock: Clock) -> None:
        self._requests = requests
        self._clock = clock

    async def earlier(
        self, namespace: str, request: RequestKey | None, kind: type[_T]
    ) -> _T | None:
        """Return the first response to a request that is repeated. Raises Refused REQUEST_ID_REUSED."""
        if request is None:
            return None
        record = await self._requests.get(namespace, request.method, request.request_id)
        return None if record is None else _first_response(record, request, kind)

    def recorder(
        self, request: RequestKey | None, reply: FutureReply[_T]
    ) -> Callable[[], RequestRecord] | None:
        """Return what makes the record of a request once its reply is made; None if it has no id."""
        if request is None:
            return None
        return lambda: _record(request, reply.made, self._clock.now())

    async def keep(self, namespace: str, request: RequestKey, response: _T, kind: type[_T]) -> _T:
        """Keep the response to a request that changed nothing; return the first one, which may be another's."""
        record = _record(request, response, self._clock.now())
        try:
            first = await self._requests.put(namespace, record)
        except StorageError as error:
            return first_response(error, request, kind)
        return _first_response(first, request, kind)


def first_response(error: StorageError, request: RequestKey | None, kind: type[_T]) -> _T:
    """Return the first response if the error says that there is one; else raise what the caller is told."""
    if isinstance(error, RequestIdReused) and request is not None:
        return _first_response(error.record, request, kind)
    message = "it could not be written; nothing was recorded, or a retry with the same request_id finds what was"
    raise Refused("JOURNAL_UNAVAILABLE", message, retry_after=SECOND) from error


def _record(request: RequestKey, response: Message, now: Instant) -> RequestRecord:
    return RequestRecord(
        method=request.method,
        request_id=request.request_id,
        fingerprint=request.fingerprint,
        response=response.SerializeToString(),
        create_time=now,
    )


def _first_response(record: RequestRecord, request: RequestKey, kind: type[_T]) -> _T:
    if record.fingerprint != request.fingerprint:
        message = f"request_id {request.request_id!r} was used for another request; use a new one"
        raise Refused("REQUEST_ID_REUSED", message, metadata={"request_id": request.request_id})
    return kind.FromString(record.response)
