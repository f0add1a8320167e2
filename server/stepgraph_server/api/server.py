"""The gRPC server: everything that answers, how it starts, and how it stops without losing anything.

Rules: it stops in this order, each step bounded: not ready, nobody comes in; sessions are drained while the engine still takes
their results; watches end; short calls finish; the rest is cut off. Nothing here decides what an answer is.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, cast

import grpc.aio
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection

from stepgraph.v1 import (
    executor_service_pb2,
    graph_service_pb2,
    interrupt_service_pb2,
    run_service_pb2,
    value_service_pb2,
)
from stepgraph_server.api.changes import Changes
from stepgraph_server.api.errors import StatusMaker
from stepgraph_server.api.executor_service import ExecutorService
from stepgraph_server.api.fields import RequestLimits
from stepgraph_server.api.gate import Gate
from stepgraph_server.api.graph_service import GraphService
from stepgraph_server.api.health import Health
from stepgraph_server.api.interrupt_service import InterruptService
from stepgraph_server.api.left_streams import close_left_streams, is_instrumented
from stepgraph_server.api.listening import (
    Address,
    AddressInUse,
    parse_address,
    refuse_if_in_use,
    refuse_unless_allowed,
)
from stepgraph_server.api.registration import Registration
from stepgraph_server.api.requests import RequestChecker
from stepgraph_server.api.run_service import RunService
from stepgraph_server.api.value_service import ValueService
from stepgraph_server.core.instants import SECOND
from stepgraph_server.core.values import ValueLimits
from stepgraph_server.storage.errors import JournalUnavailable
from stepgraph_server.telemetry import names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from google.protobuf.descriptor import ServiceDescriptor

    from stepgraph_server.api.gate import StreamKind
    from stepgraph_server.api.ports import Engine, Executors, Sessions, Watcher
    from stepgraph_server.config import Settings
    from stepgraph_server.core.instants import Span
    from stepgraph_server.core.policies import GraphDefaults
    from stepgraph_server.engine.clock import Clock
    from stepgraph_server.storage.store import Store

_log = logging.getLogger(__name__)

READINESS_PERIOD_S: Final = 2.0
"""How often it is tried whether anything can be written."""

READINESS_PATIENCE_S: Final = 5.0
"""A write that takes longer counts as one that failed."""

GOODBYE_S: Final = 1.0
"""How long streams may take to hear why they end."""

LAST_GRACE_S: Final = 0.2
"""How long grpc may take to say good-bye on connections without calls."""

TRANSPORT_PENDING: Final = 20_000
"""So many calls may wait inside gRPC to be taken, at least. What is above is reset without a reason, so it is far above what
we take: a burst is to hear OVERLOADED, with a time to come back, from us."""

_KEEPALIVE_MS: Final = 30_000
_KEEPALIVE_PATIENCE_MS: Final = 10_000
_MIN_PING_INTERVAL_MS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Backends:
    """What the services are built on."""

    store: Store
    engine: Engine
    watcher: Watcher
    sessions: Sessions
    executors: Executors
    clock: Clock
    graph_defaults: GraphDefaults


def channel_options(settings: Settings) -> Sequence[tuple[str, int]]:
    """Return how gRPC's transport behaves."""
    # Of what waits, all may be changes, and half as many again may be reads.
    pending = max(TRANSPORT_PENDING, 2 * settings.limits.max_pending_changes)
    return (
        # Two servers on one port would share the calls between them by chance.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.limits.max_request_bytes),
        # Our own limits keep responses below 3 MiB.
        ("grpc.max_send_message_length", -1),
        # By default gRPC begins to reset calls when 1,000 wait, by chance, and resets all from 3,000.
        ("grpc.server.max_pending_requests", pending),
        ("grpc.server.max_pending_requests_hard_limit", 2 * pending),
        # A peer that vanished without a word must not keep its stream.
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_PATIENCE_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        # Clients in Go, Java and Node ping every 10 to 30 s, also when nothing is under way; with gRPC's defaults
        # they would be sent away for it.
        ("grpc.http2.min_ping_interval_without_data_ms", _MIN_PING_INTERVAL_MS),
        ("grpc.http2.max_ping_strikes", 0),
    )


def refuse_address(settings: Settings) -> Address:
    """Return where the settings say to listen.

    Raises:
        AddressRefused: The address is none, is not allowed, or is in use.
    """
    wanted = parse_address(settings.listen)
    refuse_unless_allowed(wanted, insecure=settings.insecure)
    refuse_if_in_use(wanted)
    return wanted


def request_limits(settings: Settings) -> RequestLimits:
    """Return the settings that requests are held against."""
    return RequestLimits(
        values=ValueLimits(
            max_inline_bytes=settings.limits.max_inline_value_bytes,
            max_stored_bytes=settings.limits.max_stored_value_bytes,
        ),
        max_labels=settings.limits.max_labels,
        max_graph_bytes=settings.limits.max_graph_bytes,
        max_start_bytes=settings.pages.max_response_bytes,
    )


class ApiServer:
    """Everything that answers. Use it as an async context: it answers inside, and leaving it stops it in order."""

    def __init__(self, settings: Settings, backends: Backends) -> None:
        self._settings = settings
        self._backends = backends
        self.health = Health()
        self.gate = Gate(
            max_watchers=settings.limits.max_watchers,
            max_sessions=settings.limits.max_sessions,
            retry_after=SECOND,
        )
        self._changes = Changes(settings.limits.max_pending_changes)
        self._server = grpc.aio.server(options=channel_options(settings))
        self._address: Address | None = None
        self._tasks = asyncio.TaskGroup()
        self._watching_readiness: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """Where it listens, with the port that was chosen."""
        assert self._address is not None, "enter the context first"
        return str(self._address)

    async def __aenter__(self) -> Self:
        """Begin to listen.

        Raises:
            AddressRefused: The address is none, is not allowed, or is in use.
        """
        wanted = refuse_address(self._settings)
        if is_instrumented():
            close_left_streams()
        self._register()
        try:
            port = self._server.add_insecure_port(str(wanted))
        except RuntimeError as error:
            # Somebody else was faster, just now.
            message = f"can't listen on {wanted}: {error}"
            raise AddressInUse(message) from error
        self._address = Address(host=wanted.host, port=port)
        await self._changes.__aenter__()
        await self._tasks.__aenter__()
        try:
            await self._server.start()
            self.health.set_ready(is_ready=True)
            self._watching_readiness = self._tasks.create_task(self._watch_readiness())
        except BaseException:
            # Whoever is cancelled here never leaves the context, since it was never entered.
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.stop()
        finally:
            await self._tasks.__aexit__(None, None, None)
            await self._changes.settle(self._settings.shutdown.stop_grace / SECOND)
            await self._changes.__aexit__(None, None, None)

    def _register(self) -> None:
        settings, backends, pages = self._settings, self._backends, self._settings.pages
        store, engine = backends.store, backends.engine
        checker = RequestChecker(request_limits(settings))
        registration = Registration(
            gate=self.gate,
            changes=self._changes,
            checker=checker,
            statuses=StatusMaker(_log),
        )
        graphs = GraphService(
            store=store, defaults=backends.graph_defaults, clock=backends.clock, pages=pages
        )
        runs = RunService(
            runs=store.runs,
            values=store.values,
            engine=engine,
            watcher=backends.watcher,
            changes=self._changes,
            pages=pages,
        )
        interrupts = InterruptService(
            interrupts=store.interrupts,
            runs=store.runs,
            values=store.values,
            engine=engine,
            pages=pages,
        )
        executors = ExecutorService(
            sessions=backends.sessions, executors=backends.executors, engine=engine, pages=pages
        )
        values = ValueService(
            values=store.values,
            checker=checker,
            clock=backends.clock,
            limits=settings.limits,
            pages=pages,
        )
        servicers = (
            (graph_service_pb2.DESCRIPTOR.services_by_name["GraphService"], graphs),
            (run_service_pb2.DESCRIPTOR.services_by_name["RunService"], runs),
            (interrupt_service_pb2.DESCRIPTOR.services_by_name["InterruptService"], interrupts),
            (executor_service_pb2.DESCRIPTOR.services_by_name["ExecutorService"], executors),
            (value_service_pb2.DESCRIPTOR.services_by_name["ValueService"], values),
            (health_pb2.DESCRIPTOR.services_by_name["Health"], self.health),
        )
        self._server.add_generic_rpc_handlers(
            # The implementation of descriptors in C has a class of its own, with the same face.
            [
                registration.handlers(cast("ServiceDescriptor", service), servicer)
                for service, servicer in servicers
            ]
        )
        described = [service.full_name for service, _ in servicers]
        reflection.enable_server_reflection([*described, reflection.SERVICE_NAME], self._server)
        self._server.add_generic_rpc_handlers([registration.unknown_methods()])

    async def _watch_readiness(self) -> None:
        while True:
            await asyncio.sleep(READINESS_PERIOD_S)
            try:
                async with asyncio.timeout(READINESS_PATIENCE_S):
                    await self._backends.store.check_writable()
            except (JournalUnavailable, TimeoutError) as error:
                if self.health.is_ready:
                    _log.error(
                        "Nothing can be written; the server is not ready",
                        extra={"action": names.READINESS_LOST, "cause": str(error) or "too slow"},
                    )
                self.health.set_ready(is_ready=False)
            else:
                if not self.health.is_ready:
                    _log.info("Writing works again", extra={"action": names.READINESS_REGAINED})
                self.health.set_ready(is_ready=True)

    async def stop(self) -> None:
        """Stop answering, in order. Takes at most the graces of the settings and a few seconds. Repeating it is harmless."""
        if self.gate.is_shut:
            return
        if self._watching_readiness is not None:
            self._watching_readiness.cancel()
        self.health.set_ready(is_ready=False)
        self.gate.shut()
        await self._drain_sessions(self._settings.shutdown.drain_grace)
        self.gate.end_streams("watch")
        await self._wait_for(GOODBYE_S, "watch")
        await self._wait_for(self._settings.shutdown.stop_grace / SECOND)
        left = self.gate.count("watch") + self.gate.count("session")
        if left:
            _log.warning(
                "Streams did not end in time and are cut off",
                extra={"action": names.SERVER_CUT, "count": left},
            )
        # All that was worth waiting for is over. With a moment's grace connections end politely; probes that watch are cut.
        await self._server.stop(LAST_GRACE_S)

    async def _drain_sessions(self, grace: Span) -> None:
        for seat in self._backends.executors.seats():
            seat.outlet.drain("the server is shutting down", grace)
        await self._wait_for(grace / SECOND, "session")
        for seat in self._backends.executors.seats():
            seat.outlet.close("SHUTTING_DOWN", self.gate.shutting_down().message, {})
        await self._wait_for(GOODBYE_S, "session")
        self.gate.end_streams("session")
        await self._wait_for(GOODBYE_S, "session")

    async def _wait_for(self, seconds: float, *kinds: StreamKind) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.gate.until_empty(*kinds)
        except TimeoutError:
            pass
