"""Sessions over gRPC: the loops that read and write the frames of Connect.

Rules: this knows bytes, the session machine, the registry and the port `Work`, and decides nothing. A frame is handled in one
turn of the loop; whatever was said to an executor by the time its writer wakes up goes out together.

A session has two tasks. The writer is the generator that gRPC runs. The reader belongs to the group of ExecutorStreams, not
to the generator: gRPC may drop a generator without closing it, and then only the reader notices that the stream has ended.
Each ends the other.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, assert_never

from google.protobuf.message import DecodeError

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.instants import SECOND
from stepgraph_server.executors.capabilities import MAX_CAPABILITIES
from stepgraph_server.executors.session import ServerSession, State
from stepgraph_server.executors.session_events import (
    AttemptRejected,
    AttemptsAccepted,
    ByeReceived,
    CapabilitiesChanged,
    CapacityChanged,
    HelloReceived,
    OutcomesReceived,
    ProgressReceived,
    SessionClosed,
)
from stepgraph_server.executors.tool_schemas import look_through
from stepgraph_server.telemetry import names

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from stepgraph_server.core.instants import Instant, Span
    from stepgraph_server.executors.port import Work
    from stepgraph_server.executors.registry import Registry
    from stepgraph_server.executors.seats import Ack, Seat
    from stepgraph_server.executors.session_events import SessionEvent, Terms

_log = logging.getLogger(__name__)

#: What may wait for an executor that reads slowly; beyond it no more tasks are placed there, until all has been written.
MAX_WAITING_BYTES: Final = 4 * 1024 * 1024
#: How long a stream that has ended may take to tell the executor; then it is cut off.
LAST_WORDS_S: Final = 5.0


class ExecutorStreams:
    """Serves sessions. Use it as an async context; when it is left, the sessions that remain are ended."""

    def __init__(
        self,
        *,
        registry: Registry,
        work: Work,
        terms: Terms,
        now: Callable[[], Instant],
        new_session_id: Callable[[], str],
    ) -> None:
        self.registry: Final = registry
        self.work: Final = work
        self.terms: Final = terms
        self.now: Final = now
        self.new_session_id: Final = new_session_id
        self._readers = asyncio.TaskGroup()
        self._reading: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._readers.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for reader in self._reading:
            reader.cancel()
        await self._readers.__aexit__(kind, error, traceback)

    async def connect(
        self, requests: AsyncIterator[bytes], context: object = None
    ) -> AsyncGenerator[bytes, None]:
        """Serve one session: read serialized ConnectRequests, yield serialized ConnectResponses.

        Raises:
            Refused: The session has ended with a status; the table of reasons says which.
        """
        del context  # all that is needed of it are the requests
        stream = _Stream(self)
        reader = self._readers.create_task(stream.read(requests))
        self._reading.add(reader)
        reader.add_done_callback(self._reading.discard)
        try:
            while frames := await stream.frames():
                for data in frames:
                    yield data
            stream.raise_cause()
        finally:
            reader.cancel()
            stream.end()


class _Stream:
    """One session and its stream; the outlet of its seat."""

    def __init__(self, streams: ExecutorStreams) -> None:
        self._streams: Final = streams
        self._session: Final = ServerSession(streams.terms, streams.now())
        self._seat: Seat | None = None
        self._ready: Final = asyncio.Event()
        self._loop: Final = asyncio.get_running_loop()
        self._writer: Final = asyncio.current_task()
        #: How it ended: with a status, a bye, a fault, or just so.
        self._cause: SessionClosed | ByeReceived | Exception | None = None
        self._ended = False
        self._timer = self._loop.call_later(0, self._tick)

    # ---- the reader ------------------------------------------------------------------------------

    async def read(self, requests: AsyncIterator[bytes]) -> None:
        """Handle frames until one side ends the session. Never raises."""
        session, now = self._session, self._streams.now
        try:
            async for data in requests:
                if session.state is State.NEW:
                    await _look_through_tools(data)
                for event in session.receive(data, now()):
                    if isinstance(event, HelloReceived):
                        await self._join(event)
                    else:
                        self._handle(event)
                # A frame may have been answered by the session itself.
                self._ready.set()
                if session.state is State.CLOSED:
                    break
        except Exception as error:  # noqa: BLE001  # the writer raises it, in the task of the call
            self._cause = self._cause or error
        finally:
            self.end()

    async def _join(self, hello: HelloReceived) -> None:
        streams = self._streams
        joined = streams.registry.join(hello, self, streams.now())
        self._seat = seat = joined.seat
        if joined.superseded is not None:
            joined.superseded.outlet.close(
                "SESSION_SUPERSEDED",
                f"a newer stream of the executor {hello.executor_id} took over",
                {"executor_id": hello.executor_id},
            )
        if joined.lost is not None:
            streams.work.lost(joined.lost)
        wanted = await streams.work.joined(seat, hello.held, hello.unacknowledged)
        if self._session.state is State.CLOSED:
            return  # it was superseded, or shut down, in the meantime
        session_id = streams.new_session_id()
        self._session.welcome(session_id, wanted)
        streams.registry.open(seat, len(wanted.attempts))
        _log.info(
            "an executor has connected",
            extra={
                "action": names.SESSION_OPENED,
                "namespace": seat.namespace,
                "executor_id": seat.executor_id,
                "session_id": session_id,
                "client": seat.client_name,
                "held": len(hello.held),
                "unacknowledged": len(hello.unacknowledged),
            },
        )

    def _handle(self, event: SessionEvent) -> None:
        if isinstance(event, SessionClosed | ByeReceived):
            self._close(event)
            return
        seat = self._seat
        assert seat is not None, "the hello comes first"
        work, registry = self._streams.work, self._streams.registry
        match event:
            case OutcomesReceived():
                work.outcomes(seat, event.outcomes)
            case ProgressReceived():
                work.progress(seat, event.items)
            case AttemptsAccepted():
                work.accepted(seat, event.attempts)
            case AttemptRejected():
                work.rejected(seat, event.attempt, event.reason, event.message)
            case CapacityChanged():
                registry.resize(seat, event.max_in_flight)
            case CapabilitiesChanged():
                registry.change(seat, event.abilities)
            case HelloReceived():
                raise AssertionError(event)
            case _:
                assert_never(event)

    # ---- the writer ------------------------------------------------------------------------------

    async def frames(self) -> list[bytes]:
        """Return the next frames to write, all that are ready; nothing when the session has ended."""
        # Everything that was returned before has been written.
        if self._seat is not None and self._seat.paused:
            self._streams.registry.resume(self._seat)
        while True:
            await self._ready.wait()
            if not self._ended:
                self._ready.clear()
            data = self._session.data_to_send(self._streams.now())
            if data or self._ended:
                return data

    def raise_cause(self) -> None:
        """Raise what the session has ended with, if that is a status or a fault."""
        match self._cause:
            case SessionClosed(
                reason=reason, message=message, metadata=metadata, violations=violations
            ):
                raise Refused(reason, message, metadata=metadata, violations=violations)
            case Exception() as error:
                raise error
            case ByeReceived() | None:
                return
            case _:
                assert_never(self._cause)

    # ---- the end ---------------------------------------------------------------------------------

    def _close(self, cause: SessionClosed | ByeReceived) -> None:
        self._cause = self._cause or cause
        self.end()

    def end(self) -> None:
        """Give up the seat, and let the writer say its last words. Idempotent."""
        if self._ended:
            return
        self._ended = True
        self._ready.set()
        self._timer.cancel()
        if self._writer is not None and not self._writer.done():
            # The other end may never read what is being written.
            self._timer = self._loop.call_later(LAST_WORDS_S, self._cut_off)
        seat, streams = self._seat, self._streams
        if seat is None:
            return
        if isinstance(self._cause, ByeReceived):
            lost = streams.registry.leave(seat)
            if lost is not None:
                streams.work.lost(lost)
        else:
            streams.registry.lost(seat, streams.now())
        _log.info(
            "an executor's session has ended",
            extra={
                "action": names.SESSION_ENDED,
                "namespace": seat.namespace,
                "executor_id": seat.executor_id,
                "reason": _reason(self._cause),
                "seconds": (streams.now() - seat.connect_time) // SECOND,
            },
        )

    def _cut_off(self) -> None:
        if self._writer is not None:
            self._writer.cancel()

    def _tick(self) -> None:
        now = self._streams.now()
        for event in self._session.tick(now):
            self._handle(event)
        if self._ended:
            return
        self._ready.set()
        delay_s = max(0, self._session.next_tick() - now) / SECOND
        self._timer = self._loop.call_later(delay_s + 0.001, self._tick)

    # ---- the outlet ------------------------------------------------------------------------------

    def send_tasks(self, tasks: Sequence[bytes]) -> None:
        """Hand over attempts."""
        self._session.send_tasks(tasks)
        self._ready.set()
        seat = self._seat
        if seat is not None and self._session.waiting_bytes > MAX_WAITING_BYTES and not seat.paused:
            self._streams.registry.pause(seat)

    def send_cancels(self, attempts: Sequence[pb.AttemptRef], reason: str, grace: Span) -> None:
        """Ask to stop attempts."""
        self._session.send_cancels(attempts, reason, grace)
        self._ready.set()

    def send_acks(self, acks: Sequence[Ack]) -> None:
        """Say what became of results."""
        self._session.send_acks(acks)
        self._ready.set()

    def reject(self, attempt: pb.AttemptRef, reason: str, message: str) -> None:
        """Say that something about an attempt can't be taken."""
        self._session.reject(attempt, reason, message)
        self._ready.set()

    def drain(self, reason: str, grace: Span) -> None:
        """Say that no more tasks will come, and place none here."""
        if self._seat is not None:
            self._streams.registry.drain(self._seat)
        self._session.send_drain(reason, grace)
        self._ready.set()

    def close(self, reason: str, message: str, metadata: Mapping[str, str]) -> None:
        """End the session with a status."""
        for event in self._session.close(reason, message, metadata):
            self._handle(event)


async def _look_through_tools(data: bytes) -> None:
    """Look through the tools of a hello without holding up the loop: a thousand new schemas take seconds."""
    try:
        hello = pb.ConnectRequest.FromString(data).hello
    except DecodeError:
        return
    # More than that are refused, and must not cost anything before.
    some = hello.capabilities[:MAX_CAPABILITIES]
    for _ in look_through([capability.tool.definition for capability in some]):
        await asyncio.sleep(0)


def _reason(cause: SessionClosed | ByeReceived | Exception | None) -> str:
    match cause:
        case SessionClosed():
            return cause.reason
        case ByeReceived():
            return "bye"
        case Exception():
            return type(cause).__name__
        case None:
            return "the stream has ended"
        case _:
            assert_never(cause)
