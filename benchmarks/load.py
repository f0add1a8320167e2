"""Keeps so many runs alive at once, and counts what happens in them.

One stream watches all runs, without payloads, so that measuring costs the server little. A run that ends is followed by a
new one: what is measured is a server that is kept busy, and every run is started, watched and ended on the way.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc

from stepgraph.v1 import run_service_pb2 as pb
from stepgraph.v1.graph_pb2 import GraphRef
from stepgraph.v1.graph_service_pb2 import RegisterGraphRequest
from stepgraph.v1.graph_service_pb2_grpc import GraphServiceStub
from stepgraph.v1.run_service_pb2_grpc import RunServiceStub

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stepgraph.v1.event_pb2 import RunEvent
    from stepgraph.v1.graph_pb2 import StateGraph

#: Calls that start runs at one time. More would queue up in the server anyway.
STARTERS = 16
#: The nodes that executors do; the end of the graph costs them nothing.
COUNTED = frozenset({"think", "act"})
_OPTIONS = (("grpc.max_receive_message_length", 64 * 1024 * 1024),)


@dataclass(slots=True)
class Counts:
    """What was seen so far."""

    nodes: int = 0
    #: Between the ends of two nodes of one run, in ms.
    node_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What happened in a span of time."""

    seconds: float
    nodes: int
    node_ms: list[float]

    @property
    def nodes_per_second(self) -> float:
        """The rate."""
        return self.nodes / self.seconds


class Load:
    """A number of runs that is kept up. Use it through `load`."""

    def __init__(self, stubs: RunServiceStub, digest: str, label: str) -> None:
        self._runs = stubs
        self._digest = digest
        self._label = label
        self._wanted = 0
        self._alive = 0
        self._tickets: asyncio.Queue[None] = asyncio.Queue()
        self._idle = asyncio.Event()
        self._idle.set()
        self._last: dict[str, float] = {}
        self.counts = Counts()
        #: Runs that have ended since this load began.
        self.total_ended = 0

    async def keep(self, runs: int) -> None:
        """Keep so many runs alive from now on. 0 lets those that there are come to their end, and waits for it."""
        self._wanted = runs
        self._refill()
        if not runs:
            await self._idle.wait()

    async def measure(self, seconds: float) -> Window:
        """Watch for a while, and return what happened in it."""
        counts = self.counts = Counts()
        begin = time.perf_counter()
        await asyncio.sleep(seconds)
        elapsed = time.perf_counter() - begin
        self.counts = Counts()
        return Window(seconds=elapsed, nodes=counts.nodes, node_ms=counts.node_ms)

    def _refill(self) -> None:
        while self._alive < self._wanted:
            self._alive += 1
            self._tickets.put_nowait(None)
        if self._alive:
            self._idle.clear()
        else:
            self._idle.set()

    async def start_runs(self) -> None:
        """Start a run for each ticket; one of several starters."""
        request = pb.StartRunRequest(
            graph=GraphRef(reference=self._digest), labels={"benchmark": self._label}
        )
        while True:
            await self._tickets.get()
            await self._runs.StartRun(request)

    async def watch(self, ready: asyncio.Event) -> None:
        """Count what happens in all runs with our label."""
        request = pb.WatchRunsRequest(
            filter=pb.RunFilter(labels={"benchmark": self._label}), view=pb.WATCH_VIEW_SUMMARY
        )
        call = self._runs.WatchRuns(request)
        await call.initial_metadata()
        ready.set()
        async for response in call:
            for batch in response.batches:
                for event in batch.events:
                    self._count(batch.run_id, event)

    def _count(self, run_id: str, event: RunEvent) -> None:
        match event.WhichOneof("kind"):
            case "node_completed" if event.node_completed.node_id in COUNTED:
                counts = self.counts
                counts.nodes += 1
                now = event.time.seconds * 1e3 + event.time.nanos / 1e6
                before = self._last.get(run_id)
                if before is not None:
                    counts.node_ms.append(now - before)
                self._last[run_id] = now
            case "run_completed":
                self._last.pop(run_id, None)
                self.total_ended += 1
                self._alive -= 1
                self._refill()
            case "run_failed" | "run_cancelled":
                message = f"a run did not complete: {event}"
                raise RuntimeError(message)
            case _:
                pass


@contextlib.asynccontextmanager
async def load(server: str, graph: StateGraph, label: str) -> AsyncIterator[Load]:
    """Register the graph, and give a load of no runs yet."""
    async with grpc.aio.insecure_channel(server, options=_OPTIONS) as channel:
        registered = await GraphServiceStub(channel).RegisterGraph(
            RegisterGraphRequest(graph=graph), wait_for_ready=True
        )
        made = Load(RunServiceStub(channel), registered.version.digest, label)
        ready = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            watcher = tasks.create_task(made.watch(ready))
            starters = [tasks.create_task(made.start_runs()) for _ in range(STARTERS)]
            await ready.wait()
            yield made
            await made.keep(0)
            for task in (watcher, *starters):
                task.cancel()
