"""One stream of an executor: the loops that read and write its frames.

Rules: this knows bytes and the session machine, and decides nothing. The reader and the writer live and die together. All
that is ready when the writer wakes up goes out at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import grpc

from stepgraph_client._session_events import Welcomed
from stepgraph_client.errors import Status, read_status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepgraph_client._session import ExecutorSession
    from stepgraph_client._session_events import ExecutorEvent

    Call = grpc.aio.StreamStreamCall[bytes, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnd:
    """How a stream has ended.

    Attributes:
        status: What the peer ended it with; None if it ended well, or this side ended it.
        was_silent: This side ended it, because the server was silent for too long.
    """

    status: Status | None
    was_silent: bool = False


class Stream:
    """One stream, from its first frame to its end."""

    def __init__(
        self,
        session: ExecutorSession,
        handle: Callable[[Sequence[ExecutorEvent]], None],
        wake: asyncio.Event,
    ) -> None:
        """Begin.

        Args:
            session: What takes and makes frames.
            handle: What handles events, at once.
            wake: Is set by whoever has given the session something to send.
        """
        self._session: Final = session
        self._handle: Final = handle
        self._wake: Final = wake
        self._loop: Final = asyncio.get_running_loop()
        self._was_silent = False
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, call: Call) -> StreamEnd:
        """Read and write until one side ends the stream. The session is apart again afterwards."""
        self._session.connected(self._loop.time())
        self._wake.set()
        self._watch_silence(call)
        try:
            # Neither raises to end the other: a group that ends because of an exception swallows a cancellation that comes
            # from outside at that moment, and leaves the task's count of cancellations wrong (Python 3.11).
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(self._read(call))
                writing = group.create_task(self._write(call))
                reading.add_done_callback(lambda _: writing.cancel())
                writing.add_done_callback(lambda _: reading.cancel())
            if self._was_silent or not call.done():
                return StreamEnd(status=None, was_silent=self._was_silent)
            return StreamEnd(status=await _status_of(call))
        finally:
            self._stop_watching()
            call.cancel()
            self._session.disconnected()
            # Where calls are intercepted, as by instrumentation, whatever hands our frames on waits for the next one for ever.
            with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
                await call.done_writing()

    async def _read(self, call: Call) -> None:
        session, loop = self._session, self._loop
        try:
            while isinstance(data := await call.read(), bytes):  # else it is EOF
                events = session.receive(data, loop.time())
                if events:
                    self._handle(events)
                    if isinstance(events[0], Welcomed):
                        self._watch_silence(call)  # the server has said how long it may be silent
                self._wake.set()
        except grpc.aio.AioRpcError:
            pass
        except asyncio.CancelledError:
            _unless_cancelled_here()

    async def _write(self, call: Call) -> None:
        session, wake = self._session, self._wake
        try:
            while True:
                await wake.wait()
                wake.clear()
                for data in session.data_to_send():
                    await call.write(data)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The call is over; the reader sees why.
            pass
        except asyncio.CancelledError:
            _unless_cancelled_here()

    def _watch_silence(self, call: Call) -> None:
        self._stop_watching()
        # A moment later, or rounding could make it a moment early, again and again.
        at = self._session.next_tick() + 0.001
        self._timer = self._loop.call_at(at, self._tick, call)

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self, call: Call) -> None:
        events = self._session.tick(self._loop.time())
        if events:
            self._was_silent = True
            self._handle(events)
            call.cancel()  # which ends the reader
        else:
            self._watch_silence(call)


def _unless_cancelled_here() -> None:
    """Let a cancellation of this task through.

    gRPC raises CancelledError as well when the peer has ended the call with CANCELLED, as proxies do that reset a stream:
    that is no wish of ours to stop.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def _status_of(call: Call) -> Status | None:
    code = await call.code()
    if code is grpc.StatusCode.OK:
        return None
    try:
        initial = await call.initial_metadata()
    except asyncio.CancelledError:
        _unless_cancelled_here()
        initial = grpc.aio.Metadata()
    trailing = await call.trailing_metadata()
    return read_status(grpc.aio.AioRpcError(code, initial, trailing, await call.details()))
