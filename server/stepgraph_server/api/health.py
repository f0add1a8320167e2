"""Health: what probes are told. The protocol is grpc.health.v1.

Rules: `liveness` is SERVING as long as anything is answered at all, also when nothing can be written and while the server
stops: killing the process would mend neither. `readiness`, and the empty name, say whether calls are wanted here. Nothing
else is told, since probes need no credentials.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import grpc
from grpc_health.v1 import health_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from stepgraph_server.api.ports import Context

LIVENESS: Final = "liveness"
READINESS: Final = "readiness"
OVERALL: Final = ""

_Status = health_pb2.HealthCheckResponse


class Health:
    """Answers probes. Not ready until told so."""

    def __init__(self) -> None:
        self._is_ready = False
        self._changed = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Whether calls are wanted."""
        return self._is_ready

    def set_ready(self, *, is_ready: bool) -> None:
        """Say whether calls are wanted from now on."""
        if is_ready != self._is_ready:
            self._is_ready = is_ready
            # Whoever waits keeps the old event, which is set for ever.
            self._changed.set()
            self._changed = asyncio.Event()

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        """Answer once. An unknown name is NOT_FOUND, as the protocol wants it."""
        status = self._status(request.service)
        if status == _Status.SERVICE_UNKNOWN:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, "unknown name; there are liveness, readiness and ''"
            )
        return _Status(status=status)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> AsyncGenerator[health_pb2.HealthCheckResponse, None]:
        """Answer, and again whenever the answer changes. A name may be unknown, as the protocol wants it."""
        last = None
        while True:
            changed = self._changed
            status = self._status(request.service)
            if status != last:
                yield _Status(status=status)
                last = status
            await changed.wait()

    def _status(self, name: str) -> int:
        if name == LIVENESS:
            return _Status.SERVING
        if name in {READINESS, OVERALL}:
            return _Status.SERVING if self._is_ready else _Status.NOT_SERVING
        return _Status.SERVICE_UNKNOWN
