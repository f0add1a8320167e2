"""The channel that an executor's streams run over.

Rules: the options stand here and nowhere else. A channel belongs to the loop that runs when it is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc

from stepgraph.v1 import executor_service_pb2
from stepgraph_client.identity import client_version

if TYPE_CHECKING:
    Call = grpc.aio.StreamStreamCall[bytes, bytes]

#: Well above the largest frame of either side, so that what is too large is refused by name, and the stream survives it.
MAX_MESSAGE_BYTES: Final = 8 * 1024 * 1024

_OPTIONS: Final[tuple[tuple[str, str | int], ...]] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Finds a connection that died without a word, beside the pings of the session, which find a server that did.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # By default gRPC waits up to two minutes before it dials again. How often is decided by who reconnects.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Its own connection: a channel that is opened anew must not find the old, dead one in a common pool.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.primary_user_agent", client_version()),
)

_SERVICE: Final = executor_service_pb2.DESCRIPTOR.services_by_name["ExecutorService"].full_name


class ExecutorChannel:
    """Opens streams, over one connection at a time."""

    def __init__(self, server: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        self._server: Final = server
        self._credentials: Final = credentials
        self._channel: grpc.aio.Channel | None = None

    def connect(self) -> Call:
        """Open a stream of serialized frames."""
        if self._channel is None:
            self._channel = self._open()
        connect: grpc.aio.StreamStreamMultiCallable[bytes, bytes]
        connect = self._channel.stream_stream(f"/{_SERVICE}/Connect")
        return connect()

    async def close(self) -> None:
        """End the connection; `connect` opens a new one."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    def _open(self) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(self._server, options=_OPTIONS)
        return grpc.aio.secure_channel(self._server, self._credentials, options=_OPTIONS)
