"""An executor while it runs: streams one after the other, and how it ends.

Rules: functions belong to one task group that outlives every stream. Every end of a stream that was not wished for here is
followed by another stream; only what connecting again can't mend ends it all.
"""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

import grpc

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import task_pb2
from stepgraph_client._channel import ExecutorChannel
from stepgraph_client._notices import Notices
from stepgraph_client._session import ExecutorSession, State
from stepgraph_client._session_events import (
    Acked,
    CancelRequested,
    DrainRequested,
    PingReceived,
    Rejected,
    ServerSilent,
    TasksReceived,
    Welcomed,
)
from stepgraph_client._stream import Stream
from stepgraph_client._worker import Worker
from stepgraph_client.calls import Caller, Patience
from stepgraph_client.connection import Connection
from stepgraph_client.errors import refusal
from stepgraph_client.stored_values import StoredValues
from stepgraph_client.task_context import TaskHost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph_client._functions import Functions
    from stepgraph_client._session_events import ExecutorEvent, Identity
    from stepgraph_client._stream import StreamEnd
    from stepgraph_client.errors import Refused, Status

#: Connecting again. It is tried for ever, so only the delays matter.
RECONNECT: Final = Patience(first_delay_s=0.1, factor=2.0, max_delay_s=10.0)
#: The longest that the server's own wish ("come again in …") is followed.
MAX_RETRY_AFTER_S: Final = 30.0
#: A stream that lived so long was a good one: when it ends, that is a first end again.
GOOD_STREAM_S: Final = 10.0
#: How long the server may take to end the stream after bye.
BYE_S: Final = 2.0
#: What connecting again can't mend.
FATAL_REASONS: Final = frozenset(
    {"HELLO_INVALID", "SESSION_SUPERSEDED", "UNAUTHENTICATED", "FORBIDDEN"}
)
FATAL_CODES: Final = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an executor was made with."""

    server: str
    identity: Identity
    functions: Functions
    max_in_flight: int
    threads: int
    drain_timeout_s: float
    credentials: grpc.ChannelCredentials | None


class Running:
    """An executor while it runs. Made on the loop that it runs on; `until_stopped` is called once."""

    def __init__(self, plan: Plan) -> None:
        self._plan: Final = plan
        self._loop: Final = asyncio.get_running_loop()
        self._session: Final = ExecutorSession(
            plan.identity, plan.functions.capabilities, plan.max_in_flight
        )
        self._notices: Final = Notices(plan.server, plan.identity.executor_id, self._loop.time)
        self._channel: Final = ExecutorChannel(plan.server, plan.credentials)
        self._connection: Final = Connection(plan.server, plan.credentials)
        self._caller: Final = Caller(plan.server, Patience())
        self._pool: Final = ThreadPoolExecutor(plan.threads, thread_name_prefix="stepgraph")
        self._group: Final = asyncio.TaskGroup()
        self._wake: Final = asyncio.Event()
        self._stopping: Final = asyncio.Event()
        self._changed: Final = asyncio.Event()
        self._drain_asked: Final = asyncio.Event()
        self._over: Final = asyncio.Event()
        self._has_said_bye = False
        self.welcomed: Final = asyncio.Event()
        values = StoredValues(self._caller, self._connection.stubs.values, plan.identity.namespace)
        self._worker: Final = Worker(
            executor_id=plan.identity.executor_id,
            functions=plan.functions,
            session=self._session,
            host=TaskHost(self._loop, values),
            pool=self._pool,
            read_input=self._read_input,
            wake=self._on_change,
        )

    # ---- from outside ----------------------------------------------------------------------------

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Take nothing more, finish what runs within the bound, report it, say bye."""
        self._stopping.set()

    def add(self, capability: pb.Capability) -> None:
        """Be able to do more from now on."""
        self._session.add(capability)
        self._wake.set()

    def resize(self, max_in_flight: int) -> None:
        """Take so many tasks at once from now on."""
        self._session.resize(max_in_flight)
        self._wake.set()

    async def until_stopped(self) -> Refused | None:
        """Work until it is stopped, or has to stop; return what it has to stop for."""
        try:
            async with self._group as group:
                drain = group.create_task(self._drain_when_asked())
                failure = await self._stay_connected()
                drain.cancel()
                self._worker.abandon()
        finally:
            # Threads can't be stopped. Waiting for them here would hold up the loop.
            self._pool.shutdown(wait=False, cancel_futures=True)
            await self._channel.close()
            await self._connection.close()
        return failure

    # ---- streams ---------------------------------------------------------------------------------

    async def _stay_connected(self) -> Refused | None:
        failures = 0
        while True:
            started = self._loop.time()
            stream = Stream(self._session, self._handle, self._wake)
            call = self._channel.connect()
            end = await self._until_over(stream, call)
            self._changed.set()
            if self._over.is_set() or self._has_said_bye:
                self._notices.ended(end, None)
                return None
            if end.status is not None and _is_fatal(end.status):
                self._notices.ended(end, None)
                return refusal(end.status)
            failures = 1 if self._loop.time() - started >= GOOD_STREAM_S else failures + 1
            delay_s = _delay_s(end, failures)
            self._notices.ended(end, delay_s)
            if end.was_silent:
                # The connection under it may be dead without gRPC's knowing.
                await self._channel.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._over.wait()
                    return None

    async def _until_over(
        self, stream: Stream, call: grpc.aio.StreamStreamCall[bytes, bytes]
    ) -> StreamEnd:
        async with asyncio.TaskGroup() as group:
            endings = [
                group.create_task(self._end_when_over(call)),
                group.create_task(self._leave_when_drained(call)),
            ]
            end = await stream.run(call)
            for ending in endings:
                ending.cancel()
        return end

    async def _end_when_over(self, call: grpc.aio.StreamStreamCall[bytes, bytes]) -> None:
        await self._over.wait()
        call.cancel()

    async def _leave_when_drained(self, call: grpc.aio.StreamStreamCall[bytes, bytes]) -> None:
        """Leave a server that is about to stop once there is nothing to tell it: it waits for that."""
        self._drain_asked.clear()
        await self._drain_asked.wait()
        await self._until_idle()
        with suppress(asyncio.InvalidStateError):  # it was faster
            await call.done_writing()

    def _handle(self, events: Sequence[ExecutorEvent]) -> None:
        for event in events:
            match event:
                case TasksReceived():
                    self._worker.start(event.tasks, self._group)
                case Acked():
                    self._changed.set()
                case CancelRequested():
                    self._worker.cancel(event.attempts, event.reason)
                case Welcomed():
                    self._on_welcome(event)
                case DrainRequested():
                    self._drain_asked.set()
                    self._notices.say(
                        "the server is about to stop", "session.draining", reason=event.reason
                    )
                case Rejected():
                    self._on_reject(event)
                case PingReceived() | ServerSilent():
                    pass  # the session has answered, or the stream is about to end
                case _:
                    assert_never(event)

    def _on_welcome(self, event: Welcomed) -> None:
        self._worker.cancel(event.lost, "the server has given it to another executor")
        self.welcomed.set()
        self._notices.connected(event)

    def _on_reject(self, event: Rejected) -> None:
        self._changed.set()
        self._notices.rejected(event.reject, len(event.failed), len(event.dropped))

    def _on_change(self) -> None:
        self._wake.set()
        self._changed.set()

    async def _read_input(self, task: task_pb2.Task) -> task_pb2.TaskInput:
        identity = self._plan.identity
        request = pb.ReadTaskInputRequest(
            namespace=identity.namespace,
            attempt=pb.AttemptRef(task_id=task.task_id, attempt=task.attempt),
            instance_token=identity.instance_token,
        )

        async def attempt() -> task_pb2.TaskInput:
            responses = self._connection.stubs.executors.ReadTaskInput(request)
            chunks = [response.chunk async for response in responses]
            return task_pb2.TaskInput.FromString(b"".join(chunks))

        return await self._caller.retried(attempt)

    # ---- the end ---------------------------------------------------------------------------------

    async def _drain_when_asked(self) -> None:
        await self._stopping.wait()
        self._notices.say(
            "stops: takes nothing more, and finishes what it has",
            "executor.draining",
            held=self._session.held,
        )
        self.resize(0)
        try:
            async with asyncio.timeout(self._plan.drain_timeout_s):
                await self._until_idle()
        except TimeoutError:
            self._notices.say("the time to drain is over", "executor.cut", held=self._session.held)
        if self._session.state is State.LIVE:
            self._has_said_bye = True
            self._session.bye("the executor stops")
            self._wake.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(BYE_S):
                    # The server ends the stream, which leaves the session apart.
                    await self._until_apart()
        self._over.set()

    async def _until_idle(self) -> None:
        while self._session.held or self._session.unacknowledged:
            self._changed.clear()
            await self._changed.wait()

    async def _until_apart(self) -> None:
        while self._session.state is not State.APART:
            self._changed.clear()
            await self._changed.wait()


def _is_fatal(status: Status) -> bool:
    return status.reason in FATAL_REASONS or status.code in FATAL_CODES


def _delay_s(end: StreamEnd, failures: int) -> float:
    wished_s = 0.0 if end.status is None else end.status.retry_after_s or 0.0
    # Random, so that all executors of a server that comes back don't come back as one.
    delay_s = RECONNECT.delay_s(failures, random.random())  # noqa: S311  # not a secret
    return max(delay_s, min(wished_s, MAX_RETRY_AFTER_S))
