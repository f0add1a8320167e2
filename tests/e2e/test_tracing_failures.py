"""Traces when something goes wrong: failures, cancels, kills, and a collector that is away."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest
from opentelemetry import context as current
from opentelemetry import trace

from stepgraph_client import Failed, Graph, TaskContext, proceed, retry
from tests.support.e2e_house import happened, house_at
from tests.support.e2e_processes import ServerProcess, free_port
from tests.support.otlp_collector import Collector, collecting

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]
CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"


@pytest.fixture
async def collector(monkeypatch):
    """A collector that the server will find in its environment; every run is recorded."""
    async with collecting() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
        yield made


def one_tool(**options):
    graph = Graph("work")
    graph.tool("act", "act", {}, **options)
    graph.assign("done")
    graph.edge("act", "done")
    graph.end("done")
    return graph


async def test_tries_and_failures_are_spans_with_their_codes(collector, server, house, client):
    executor = house.executor("hands")

    @executor.tool()
    def act(ctx: TaskContext) -> str:
        raise Failed("BROKEN", "with a secret in it", retryable=True, retry_after="1ms")

    await house.work(executor)
    run = await client.start_run(one_tool(retry=retry(max_tries=2)), run_id="r1")
    await run.wait()

    of_run = await collector.one("run")
    first, second = await collector.named("execute_tool act", 2)
    [node] = collector.of("node act")
    assert (first.error, second.error, node.error, of_run.error) == ("BROKEN",) * 4
    assert (first["stepgraph.attempt"], second["stepgraph.attempt"]) == (1, 2)
    assert first.parent_id == second.parent_id == node.span_id
    assert node.parent_id == of_run.span_id
    assert of_run["stepgraph.run.status"] == "failed"
    assert b"with a secret" not in b"".join(collector.raw)


async def test_a_cancel_ends_what_was_under_way(collector, server, house, client):
    executor = house.executor("hands")

    @executor.tool()
    async def act() -> str:
        await house.ledger.note("act")
        await asyncio.Event().wait()
        return ""

    await house.work(executor)
    run = await client.start_run(one_tool(), run_id="r1")
    await house.ledger.called("act")
    await run.cancel("enough")
    await run.wait()

    of_run = await collector.one("run")
    [attempt] = collector.of("execute_tool act")
    [node] = collector.of("node act")
    assert [each["stepgraph.outcome"] for each in (attempt, node)] == ["cancelled"] * 2
    assert of_run["stepgraph.run.status"] == "cancelled"
    assert (attempt.error, node.error, of_run.error) == ("", "", "")


async def test_a_kill_in_the_middle_of_an_attempt_leaves_it_one_span(
    collector, server, house, client
):
    gate = asyncio.Event()
    seen = []
    executor = house.executor("hands")

    @executor.tool()
    async def act(ctx: TaskContext) -> str:
        seen.append(ctx.traceparent)
        await house.ledger.note("act")
        await gate.wait()
        return ""

    await house.work(executor)
    run = await client.start_run(one_tool(), run_id="r1")
    await house.ledger.called("act")
    await server.restart()
    gate.set()
    await run.wait()

    await collector.one("run")
    [attempt] = collector.of("execute_tool act")
    assert seen == [f"00-{attempt.trace_id}-{attempt.span_id}-01"]
    assert [span.name for span in collector.spans] == [
        "execute_tool act",
        "node act",
        "node done",
        "run",
    ]


@pytest.mark.parametrize("sampler", ["parentbased_always_on", "parentbased_always_off"])
async def test_a_caller_decides_whether_its_runs_are_recorded(
    collector, data, monkeypatch, sampler
):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    seen = {}
    async with ServerProcess(data) as server, house_at(server.address) as house:
        executor = house.executor("hands")

        @executor.tool()
        def act(ctx: TaskContext) -> str:
            seen[ctx.run_id] = ctx.traceparent
            return ""

        await house.work(executor)
        client = await house.client()
        for flag in ("00", "01"):
            context = trace.set_span_in_context(trace.NonRecordingSpan(_context(flag)))
            token = current.attach(context)
            run = await client.start_run(one_tool(), run_id=f"r{flag}")
            current.detach(token)
            await run.wait()
        of_run = await collector.one("run")
    assert of_run["stepgraph.run.id"] == "r01"
    assert of_run.parent_id == "00f067aa0ba902b7"
    assert {span["stepgraph.run.id"] for span in collector.spans} == {"r01"}
    for flag in ("00", "01"):
        _, trace_id, span_id, flags = seen[f"r{flag}"].split("-")
        assert trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"
        assert flags == flag
        assert span_id != "00f067aa0ba902b7"


def _context(flag):
    _, trace_id, span_id = CALLER.split("-")
    flags = trace.TraceFlags(int(flag, 16))
    return trace.SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=flags
    )


async def test_without_a_collector_the_server_works_says_so_once_and_stops_in_time(
    data, monkeypatch
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.3")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    async with ServerProcess(data) as server, house_at(server.address) as house:
        executor = house.executor("hands")
        executor.tool(name="act")(lambda: "done")
        await house.work(executor)
        client = await house.client()
        for _ in range(20):
            run = await client.start_run(one_tool())
            await run.wait()
        await server.line('"collector.lost"', count=2)  # one for traces, one for metrics
        await house.leave(executor)
        loop = asyncio.get_running_loop()
        began = loop.time()
        server.signal(signal.SIGTERM)
        assert await server.ended() == 0
        assert loop.time() - began < 15
        said = [json.loads(line) for line in server.lines if line.startswith("{")]
    lost = [entry["signal"] for entry in said if entry["action"] == "collector.lost"]
    assert sorted(lost) == ["metrics", "traces"]
    assert [entry["action"] for entry in said].count("spans.lost") <= 2
    assert not [line for line in server.lines if "opentelemetry" in line.lower()]


async def test_a_collector_that_comes_later_gets_what_ends_from_then_on(data, monkeypatch):
    late = Collector()
    late.address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", late.endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.3")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    graph = Graph("ask")
    graph.approval("sure", "Sure?")
    graph.approval("really", "Really?")
    graph.chain("sure", "really")
    graph.end("really")
    async with ServerProcess(data) as server, house_at(server.address) as house:
        client = await house.client()
        run = await client.start_run(graph, run_id="r1")
        first = await happened(client, "r1", "interrupt_opened")
        await client.answer(first.interrupt_opened.question.interrupt_id, proceed())
        second = await happened(client, "r1", "interrupt_opened", 2)
        await server.line('"collector.lost"')
        async with collecting(late):
            await client.answer(second.interrupt_opened.question.interrupt_id, proceed())
            await run.wait()
            of_run = await late.one("run")
            await server.line('"collector.regained"')
    assert [span.name for span in late.spans] == ["node really", "run"]
    assert of_run.start_ns < late.of("node really")[0].start_ns
