"""A server as one process of the simulated world: everything but gRPC, put together as the composition root does it.

Rules: whoever talks to it does so through `call`, `watch` and `connect`, which may fail as a network does. Whatever leaves it is looked
up in the ledger first: nothing is sent, acknowledged, answered or shown before it is durable.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import run_pb2
from stepgraph_server.api.executor_stream import ExecutorStreams
from stepgraph_server.app import Parts, terms
from stepgraph_server.config import LimitSettings, RetrySettings, Settings, TaskSettings
from stepgraph_server.core.errors import Refused, StepgraphError
from stepgraph_server.core.instants import SECOND, Span
from stepgraph_server.executors.port import split_task_id
from stepgraph_server.storage.errors import StorageError
from tests.simulation.loop import Process
from tests.simulation.network import ConnectionLost, Link, Requests

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from tests.simulation.world import World

NAMESPACE = "default"
#: A run limit that freezes hit soon, and tries enough that faults alone fail no task.
SETTINGS = Settings(
    memory=True,
    limits=LimitSettings(max_iterations=30),
    tasks=TaskSettings(queue=Span(1_800 * SECOND), run=Span(45 * SECOND), idle=Span(20 * SECOND)),
    retry=RetrySettings(max_tries=12, first_delay=Span(SECOND), max_delay=Span(4 * SECOND)),
)
#: Larger than a result may be.
MAX_INLINE_BYTES = SETTINGS.limits.max_inline_value_bytes

_ENDINGS = {
    "task_completed": (pb.ACK_VERDICT_ACCEPTED, pb.ACK_VERDICT_DUPLICATE, pb.ACK_VERDICT_CONFLICT),
    "task_failed": (pb.ACK_VERDICT_ACCEPTED,),
    "task_cancelled": (pb.ACK_VERDICT_ACCEPTED,),
}


class Server:
    """One server process."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.process = Process(world.loop, f"server {number}")
        self.store = world.make_store()
        self.store.begin(self.process)
        self.parts = self.process.call(Parts, SETTINGS, self.store, world.clock, {})
        self._is_leaving = asyncio.Event()
        self.is_ready = False
        self.has_left = False
        self._calls: set[asyncio.Future[Any]] = set()
        self._links: dict[Link, asyncio.Task[None]] = {}
        self._session_ids = random.Random(f"{world.seed}/sessions/{number}")
        self.process.on_death = lambda: world.server_is_gone(self)
        self.process.spawn(self._live())

    # Its life

    async def _live(self) -> None:
        parts = self.parts
        try:
            await parts.store.start(parts.runner.on_appended)
            async with parts.background as background:
                background.spawn(parts.recovery.take_up(await parts.recovery.recover()))
                background.spawn(parts.recovery.watch_graces())
                parts.sessions = self._sessions()
                await parts.sessions.__aenter__()
                self.is_ready = True
                await self._is_leaving.wait()
                self.is_ready = False
                await self._say_goodbye()
                await parts.sessions.__aexit__(None, None, None)
                parts.runner.close()
            parts.runner.close()
            await parts.store.close()
        except StorageError as error:
            self.world.note(f"{self.process.name} can't start: {error}")
        except BaseExceptionGroup as errors:
            self.world.trouble(f"{self.process.name} ended by a fault: {errors.exceptions!r}")
        self.has_left = True
        self.world.loop.soon(self.world.server_is_gone, self)

    def _sessions(self) -> ExecutorStreams:
        parts = self.parts
        return ExecutorStreams(
            registry=parts.registry,
            work=parts.dispatcher,
            terms=terms(SETTINGS),
            now=self.world.clock.now,
            new_session_id=lambda: f"{self._session_ids.getrandbits(64):016x}",
        )

    async def _say_goodbye(self) -> None:
        """Do what SIGTERM leads to: executors finish what they can, watches end."""
        parts = self.parts
        for seat in parts.registry.seats():
            seat.outlet.drain("SHUTTING_DOWN", Span(5 * SECOND))
        parts.watcher._hub.close()
        await asyncio.sleep(5)
        for seat in parts.registry.seats():
            seat.outlet.close("SHUTTING_DOWN", "the server stops", {})

    def leave(self) -> None:
        """End as on SIGTERM."""
        self._is_leaving.set()

    def buried(self) -> None:
        """Tell those who talk with it that it is dead."""
        for waiter in self._calls:
            if not waiter.done():
                waiter.set_exception(ConnectionLost())
        self._calls.clear()
        for link in self._links:
            link.left_by_server(after_all=False)
        self._links.clear()

    @property
    def is_up(self) -> bool:
        """Whether it answers."""
        return self.process.alive and self.is_ready

    # Calls

    async def call(
        self, make: Callable[[Parts], Awaitable[Any]], check: Callable[[Any], None]
    ) -> Any:
        """Call a method, over the network. `check` sees the response in the moment in which it leaves.

        Raises:
            ConnectionLost: Whether anything was done, nobody knows.
            StepgraphError: It was refused.
        """
        loop = self.world.loop
        waiter: asyncio.Future[Any] = loop.create_future()
        self._calls.add(waiter)
        # Should the caller go away, what it has begun goes on all the same.
        self.process.spawn(self._answer(make, check, waiter))
        try:
            return await waiter
        finally:
            self._calls.discard(waiter)

    async def _answer(self, make: Any, check: Any, waiter: asyncio.Future[Any]) -> None:
        try:
            response = await make(self.parts)
            check(response)
        except (StepgraphError, asyncio.CancelledError) as error:
            if not waiter.done():
                failure = error if isinstance(error, StepgraphError) else ConnectionLost()
                waiter.set_exception(failure)
            return
        if not waiter.done():
            waiter.set_result(response)

    async def watch(
        self,
        make: Callable[[Parts], AsyncGenerator[Any, None]],
        give: Callable[[Any], Awaitable[None]],
    ) -> None:
        """Feed a watch until it ends; it waits while who watches does not take what it has.

        Raises:
            ConnectionLost, StepgraphError: As `call`.
        """
        done: asyncio.Future[None] = self.world.loop.create_future()
        self._calls.add(done)
        task = self.process.spawn(self._feed(make, give, done))
        try:
            await done
        finally:
            self._calls.discard(done)
            if self.process.alive:
                task.cancel()

    async def _feed(self, make: Any, give: Any, done: asyncio.Future[None]) -> None:
        try:
            async with aclosing(make(self.parts)) as items:
                async for item in items:
                    await give(item)
        except (StepgraphError, ConnectionLost) as error:
            if not done.done():
                done.set_exception(error)
        else:
            if not done.done():
                done.set_result(None)

    # Sessions

    def connect(self, link: Link) -> None:
        """Serve the session of an executor."""
        requests = Requests(self.world.loop)
        link.up.on_data = requests.take
        task = self.process.spawn(self._serve(link, requests))
        self._links[link] = task

        def ended() -> None:
            self._links.pop(link, None)
            # gRPC ends the requests, with an error or without, and cancels the call.
            requests.end(ConnectionLost() if self._session_ids.random() < 0.5 else None)
            if self._session_ids.random() < 0.5:
                task.cancel()

        link.up.on_end = ended

    async def _serve(self, link: Link, requests: Requests) -> None:
        try:
            async for data in self.parts.sessions.connect(requests):
                self._check_frame(data)
                self.world.network.may_break(link)
                await link.down.write(data)
        except Refused as error:
            link.status = error.reason
        except ConnectionLost:
            pass
        finally:
            self._links.pop(link, None)
            link.left_by_server(after_all=True)

    # What may leave

    def _check_frame(self, data: bytes) -> None:
        frame = pb.ConnectResponse.FromString(data)
        kind = frame.WhichOneof("frame")
        if kind == "tasks":
            for task in frame.tasks.tasks:
                run_id, task_id = split_task_id(task.task_id)
                if not self.world.ledger.book(run_id).is_assigned(task_id, task.attempt):
                    self.world.trouble(
                        f"{task.task_id}#{task.attempt} was sent before it was durable"
                    )
            self._check_acks(frame.tasks.acks)
        elif kind == "acks":
            self._check_acks(frame.acks.acks)

    def _check_acks(self, acks: Any) -> None:
        for ack in acks:
            self.world.count(pb.AckVerdict.Name(ack.verdict))
            if ack.verdict == pb.ACK_VERDICT_STALE:
                continue
            run_id, task_id = split_task_id(ack.task_id)
            end = self.world.ledger.book(run_id).ended.get((task_id, ack.attempt), "nothing")
            if ack.verdict not in _ENDINGS.get(end, ()):
                verdict = pb.AckVerdict.Name(ack.verdict)
                self.world.trouble(
                    f"{ack.task_id}#{ack.attempt} got {verdict}, and {end} is durable"
                )

    def check_run(self, run: run_pb2.Run) -> None:
        """Check that what is said of a run is durable."""
        book = self.world.ledger.book(run.run_id)
        if run.last_sequence > book.last or not book.last:
            self.world.trouble(
                f"event {run.last_sequence} of {run.run_id} was told of, and {book.last} are durable"
            )


__all__ = ["MAX_INLINE_BYTES", "NAMESPACE", "SETTINGS", "Server"]
