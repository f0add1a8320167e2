"""Whoever puts OpenTelemetry's own instrumentation around a server or a client breaks nothing, and gets one trace."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.support.e2e_processes import Process, ServerProcess
from tests.support.otlp_collector import collecting

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(90)]
INSTRUMENT = str(Path(sys.executable).with_name("opentelemetry-instrument"))


@pytest.fixture
async def collector(monkeypatch):
    async with collecting() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
        monkeypatch.setenv("OTEL_LOGS_EXPORTER", "none")
        yield made


class InstrumentedServer(ServerProcess):
    def __init__(self, data):
        super().__init__(data)
        self.command = (INSTRUMENT, *self.command)


class Program(Process):
    def __init__(self, address, *before):
        super().__init__(*before, sys.executable, "-m", "tests.support.otlp_every_rpc", address)


def wrong(process):
    """Return what a process said that nobody should have to read."""
    words = ("Failed to detach", "Traceback", "was never retrieved", "never awaited", "__aiter__")
    return [line for line in process.lines if any(word in line for word in words)]


@pytest.mark.parametrize("server_type", [ServerProcess, InstrumentedServer])
@pytest.mark.parametrize("before", [(), (INSTRUMENT,)], ids=["plain", "instrumented"])
async def test_every_rpc_works_and_streams_that_are_left_leave_nothing(
    collector, data, server_type, before
):
    async with server_type(data) as server, Program(server.address, *before) as program:
        await program.line("all done")
        assert await program.ended() == 0
        assert server.faults() == []
        server.signal(signal.SIGTERM)
        assert await server.ended() == 0
        assert wrong(server) == []
        assert wrong(program) == []


async def test_both_sides_instrumented_make_one_trace_and_none_of_its_own_export(collector, data):
    async with InstrumentedServer(data) as server, Program(server.address, INSTRUMENT) as program:
        await program.line("all done")
        assert await program.ended() == 0
        of_run = await collector.one("run approved" if collector.of("run approved") else "run")
        [caller] = await collector.named("caller")
        server.signal(signal.SIGTERM)
        assert await server.ended() == 0
    assert of_run.trace_id == caller.trace_id
    by_id = {span.span_id: span for span in collector.spans}
    assert by_id[of_run.parent_id].name == "/stepgraph.v1.RunService/StartRun"
    assert by_id[by_id[of_run.parent_id].parent_id] is caller
    [attempt] = collector.of("execute_tool act")
    [work] = collector.of("tool act")
    assert work.parent_id == attempt.span_id
    assert not [span for span in collector.spans if "TraceService" in span.name]
