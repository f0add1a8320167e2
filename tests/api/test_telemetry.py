"""What a whole server counts: metrics that stay few, where they are asked for."""

from __future__ import annotations

import asyncio
import socket
import urllib.request
from contextlib import AsyncExitStack
from dataclasses import replace
from uuid import uuid4

import grpc
import pytest

from stepgraph_client import Client, Executor, Graph
from stepgraph_server.api.listening import AddressInUse, AddressRefused
from stepgraph_server.app import running_server
from stepgraph_server.telemetry import telemetry
from tests.support.e2e_house import IN_PROCESS, STUBBORN

SCRAPED = replace(IN_PROCESS, metrics_address="127.0.0.1:0")
NAMESPACES = ("one", "two", "three")
GRAPHS = [f"graph_{number}" for number in range(100)]
EXECUTORS = 50


async def scrape(server):
    """Return all series with their values."""
    url = f"http://{server.telemetry.metrics_address}/metrics"
    with await asyncio.to_thread(urllib.request.urlopen, url, timeout=5) as response:
        lines = response.read().decode().splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {series: float(value) for series, value in pairs}


def two_tools(name):
    """Build a graph of two tools, in nodes that no other graph has."""
    graph = Graph(name)
    graph.tool(f"{name}_first", "work", {})
    graph.tool(f"{name}_second", "work", {})
    graph.chain(f"{name}_first", f"{name}_second")
    graph.end(f"{name}_second")
    return graph


async def _start_runs(clients, runs):
    async def starter(first):
        for number in range(first, runs, EXECUTORS):
            client = clients[number % len(clients)]
            await client.start_run(GRAPHS[number % len(GRAPHS)], run_id=f"run-{number}")

    await asyncio.gather(*map(starter, range(EXECUTORS)))


async def _call_what_there_is_not(address):
    async with grpc.aio.insecure_channel(address) as channel:
        for number in range(50):
            call = channel.unary_unary(f"/stepgraph.v1.RunService/Unheard{number}")
            with pytest.raises(grpc.aio.AioRpcError):
                await call(b"")


@pytest.mark.parametrize(
    "runs", [300, pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(300)])]
)
async def test_there_are_as_many_series_after_many_runs_as_before_the_first(runs):
    async with running_server(SCRAPED) as server, AsyncExitStack() as stack:
        before = await scrape(server)
        clients = [
            await stack.enter_async_context(
                Client(server.address, namespace=each, patience=STUBBORN)
            )
            for each in NAMESPACES
        ]
        for client in clients:
            for name in GRAPHS:
                await client.register_graph(two_tools(name))
        working = await stack.enter_async_context(asyncio.TaskGroup())
        executors = []
        for number in range(EXECUTORS):
            namespace = NAMESPACES[number % len(NAMESPACES)]
            executor = Executor(server.address, executor_id=str(uuid4()), namespace=namespace)
            executor.tool(name="work")(lambda: "done")
            working.create_task(executor.run())
            executors.append(executor)
        await asyncio.gather(*(executor.connected() for executor in executors))
        await _start_runs(clients, runs)
        await _call_what_there_is_not(server.address)
        tally = server.telemetry.sources.tally
        while sum(tally.runs_ended.values()) < runs:  # noqa: ASYNC110  # a counter has no event
            await asyncio.sleep(0.05)
        after = await scrape(server)
        for executor in executors:
            executor.stop()

    assert set(after) == set(before)
    assert after["stepgraph_runs_started_total"] == runs
    assert after['stepgraph_runs_ended_total{status="completed"}'] == runs
    assert after['stepgraph_nodes_ended_total{status="completed"}'] == 2 * runs
    assert after["stepgraph_attempts_started_total"] == 2 * runs
    assert after["stepgraph_journal_size_bytes_total"] > 0


async def test_what_waits_and_what_is_under_way_is_shown(monkeypatch):
    monkeypatch.setattr(telemetry, "PERIOD_S", 0.01)
    gate = asyncio.Event()
    async with (
        running_server(SCRAPED) as server,
        Client(server.address) as client,
        asyncio.TaskGroup() as working,
    ):
        executor = Executor(server.address, executor_id="one", max_in_flight=1)

        @executor.tool()
        async def work() -> str:
            await gate.wait()
            return "done"

        working.create_task(executor.run())
        await executor.connected()
        runs = [await client.start_run(two_tools("graph")) for _ in range(3)]

        async def shows(**wanted):
            async with asyncio.timeout(10):
                while True:
                    seen = await scrape(server)
                    if all(
                        seen.get(f"stepgraph_{name}") == value for name, value in wanted.items()
                    ):
                        return seen

        seen = await shows(queue_tasks=2, attempts_in_flight=1, sessions=1)
        assert seen["stepgraph_queue_oldest_age_seconds"] > 0
        gate.set()
        for run in runs:
            await run.wait()
        # What is shown may be from a moment between two nodes, where nothing waits either: the results are waited for too.
        results = {'results_total{verdict="accepted"}': 6}
        await shows(queue_tasks=0, attempts_in_flight=0, queue_oldest_age_seconds=0, **results)
        executor.stop()


async def test_metrics_are_for_this_machine_unless_somebody_says_otherwise():
    with pytest.raises(AddressRefused, match=r"0\.0\.0\.0:9464"):
        async with running_server(replace(SCRAPED, metrics_address="0.0.0.0:9464")):
            pass
    with pytest.raises(AddressRefused, match="is not host:port"):
        async with running_server(replace(SCRAPED, metrics_address="9464")):
            pass
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(AddressInUse, match="scrapes of metrics"):
            async with running_server(replace(SCRAPED, metrics_address=address)):
                pass
