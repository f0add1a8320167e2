"""A client and executors of one server, for tests: what they do is counted here, outside the server.

Everything that is opened is closed in order at the end, and every wait is bounded.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeGuard

from stepgraph_client import Client, Executor, Patience
from stepgraph_server.app import RunningServer, running_server
from stepgraph_server.config import Settings, ShutdownSettings
from stepgraph_server.core.instants import MILLISECOND, Span

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from stepgraph.v1.event_pb2 import RunEvent
    from stepgraph_client import Event

PATIENCE_S = 20.0
#: For clients that meet servers which are being restarted.
STUBBORN = Patience(max_tries=200, timeout_s=5, first_delay_s=0.02, max_delay_s=0.1)
#: Stops at once: nobody in a test is given time to say good-bye.
IN_PROCESS = Settings(
    listen="127.0.0.1:0",
    memory=True,
    shutdown=ShutdownSettings(
        drain_grace=Span(100 * MILLISECOND), stop_grace=Span(100 * MILLISECOND)
    ),
)


class Ledger:
    """What executors did: calls by name, and how many were at work at once."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.working: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self._changed = asyncio.Condition()

    async def note(self, name: str) -> int:
        """Count a call, and return which one it is."""
        async with self._changed:
            self.calls[name] += 1
            self._changed.notify_all()
            return self.calls[name]

    async def begin(self, name: str) -> None:
        """Say that work begins."""
        async with self._changed:
            self.calls[name] += 1
            self.working[name] += 1
            self.most[name] = max(self.most[name], self.working[name])
            self._changed.notify_all()

    async def end(self, name: str) -> None:
        """Say that work has ended."""
        async with self._changed:
            self.working[name] -= 1
            self._changed.notify_all()

    async def until(self, holds: Callable[[Ledger], bool]) -> None:
        """Return once something holds."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: holds(self))

    async def called(self, name: str, count: int = 1) -> None:
        """Return once something was called so often."""
        await self.until(lambda ledger: ledger.calls[name] >= count)


class House:
    """One server's address, with a client and executors that end with it."""

    def __init__(self, address: str, group: asyncio.TaskGroup) -> None:
        self.address = address
        self.ledger = Ledger()
        self._group = group
        self._open = AsyncExitStack()
        self._working: dict[Executor, asyncio.Task[None]] = {}

    async def client(self, address: str = "", *, namespace: str = "default") -> Client:
        """Return a client that is closed at the end."""
        made = Client(
            address or self.address,
            namespace=namespace,
            patience=STUBBORN,
            watch_patience=STUBBORN,
        )
        return await self._open.enter_async_context(made)

    def executor(
        self, executor_id: str, *, max_in_flight: int = 100, address: str = ""
    ) -> Executor:
        """Return an executor that does nothing yet."""
        return Executor(
            address or self.address,
            executor_id=executor_id,
            max_in_flight=max_in_flight,
            drain_timeout_s=0.1,
        )

    async def work(self, executor: Executor) -> None:
        """Let an executor work until the end; return once it is connected."""
        self._working[executor] = self._group.create_task(executor.run())
        async with asyncio.timeout(PATIENCE_S):
            await executor.connected()

    async def leave(self, executor: Executor) -> None:
        """Let an executor stop in order."""
        executor.stop()
        await self._working.pop(executor)

    async def close(self) -> None:
        """End everything."""
        for task in self._working.values():
            task.cancel()
        await asyncio.gather(*self._working.values(), return_exceptions=True)
        await self._open.aclose()


@asynccontextmanager
async def house_at(address: str) -> AsyncIterator[House]:
    """Open a house at the address of a server that runs, or is yet to run."""
    async with asyncio.TaskGroup() as group:
        house = House(address, group)
        try:
            yield house
        finally:
            await house.close()


@asynccontextmanager
async def house_with_server(
    data: Path | None = None, settings: Settings = IN_PROCESS
) -> AsyncIterator[tuple[House, RunningServer]]:
    """Open a house with a server of its own in this process, on a file if one is given."""
    if data is not None:
        settings = replace(settings, memory=False, data=data)
    async with running_server(settings) as server, house_at(server.address) as house:
        yield house, server


def kinds(events: list[RunEvent]) -> list[str]:
    """Return what happened, by its kinds."""
    return [str(event.WhichOneof("kind")) for event in events]


def is_durable(event: Event) -> TypeGuard[RunEvent]:
    """Say whether it is an event of the journal."""
    return event.DESCRIPTOR.name == "RunEvent"


async def history(client: Client, run_id: str) -> list[RunEvent]:
    """Return the events that a run has by now."""
    async with (
        asyncio.timeout(PATIENCE_S),
        aclosing(client.watch(run_id, history_only=True)) as all_,
    ):
        return [event async for event in all_ if is_durable(event)]


async def happened(client: Client, run_id: str, kind: str, count: int = 1) -> RunEvent:
    """Return the event of a kind that happens for the `count`-th time, once it has."""
    async with asyncio.timeout(PATIENCE_S), aclosing(client.watch(run_id)) as events:
        async for event in events:
            if is_durable(event) and event.WhichOneof("kind") == kind:
                count -= 1
                if not count:
                    return event
    message = f"{run_id} ended without another {kind}"
    raise AssertionError(message)
