"""One channel to a server, and the stubs of its services.

Rules: the options of the channel stand here and nowhere else. It opens when it is first used, because a channel belongs
to the loop that runs then.
"""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from stepgraph.v1.executor_service_pb2_grpc import ExecutorServiceStub
from stepgraph.v1.graph_service_pb2_grpc import GraphServiceStub
from stepgraph.v1.interrupt_service_pb2_grpc import InterruptServiceStub
from stepgraph.v1.run_service_pb2_grpc import RunServiceStub
from stepgraph.v1.value_service_pb2_grpc import ValueServiceStub
from stepgraph_client.identity import client_version

DEFAULT_SERVER = "127.0.0.1:7233"

_OPTIONS: tuple[tuple[str, str | int], ...] = (
    # By default gRPC waits a second and more before it dials again, longer than a restarted server needs.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 3_000),
    # Finds out that a connection died without a word. Servers end connections that ping more often than every five
    # minutes, unless they are told otherwise; so this is just above.
    ("grpc.keepalive_time_ms", 330_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.primary_user_agent", client_version()),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stubs:
    """The services of one server."""

    runs: RunServiceStub
    graphs: GraphServiceStub
    interrupts: InterruptServiceStub
    executors: ExecutorServiceStub
    values: ValueServiceStub


class Connection:
    """A channel that opens itself. Close it when done; it may be used again afterwards, and opens anew."""

    def __init__(self, server: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        self.server = server
        self._credentials = credentials
        self._channel: grpc.aio.Channel | None = None
        self._stubs: Stubs | None = None

    @property
    def stubs(self) -> Stubs:
        """The services. Only inside a running event loop."""
        if self._stubs is None:
            self._channel = self._open()
            self._stubs = Stubs(
                runs=RunServiceStub(self._channel),
                graphs=GraphServiceStub(self._channel),
                interrupts=InterruptServiceStub(self._channel),
                executors=ExecutorServiceStub(self._channel),
                values=ValueServiceStub(self._channel),
            )
        return self._stubs

    async def close(self) -> None:
        """End all calls and the channel."""
        channel, self._channel, self._stubs = self._channel, None, None
        if channel is not None:
            await channel.close()

    def _open(self) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(self.server, options=_OPTIONS)
        return grpc.aio.secure_channel(self.server, self._credentials, options=_OPTIONS)
