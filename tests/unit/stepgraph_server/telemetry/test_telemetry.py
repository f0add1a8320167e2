"""All that is recorded about a server, put together."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import urllib.request

import pytest

from stepgraph_server.config import SettingError
from stepgraph_server.telemetry.measurements import Measurements
from stepgraph_server.telemetry.otel_settings import Ignored, OtelSettings, read
from stepgraph_server.telemetry.telemetry import GOODBYE_S, ScrapeAddress, Telemetry
from tests.support.otlp_events import STARTED, events, trace


def telemetry(settings, scrape=None):
    return Telemetry(settings, lambda *_: None, "1", scrape)


async def test_nothing_that_was_asked_for_starts_nothing(caplog):
    caplog.set_level(logging.INFO)
    async with telemetry(OtelSettings()) as it:
        assert it.recorder is None
    assert caplog.records == []


async def test_what_is_recorded_is_said(caplog, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    caplog.set_level(logging.INFO)
    async with telemetry(OtelSettings(traces=True)) as it:
        assert it.recorder is not None
    [said] = caplog.records
    assert (said.action, said.traces, said.sampled_ratio) == ("telemetry.started", True, 0.05)


async def test_a_variable_that_can_not_be_used_is_said(caplog):
    async with telemetry(OtelSettings(ignored=(Ignored(variable="OTEL_X", expected="y"),))):
        pass
    [said] = caplog.records
    assert (said.action, said.variable, said.expected) == ("telemetry.ignored", "OTEL_X", "y")


def test_a_server_without_telemetry_imports_nothing_of_opentelemetry():
    text = (
        "import sys, stepgraph_server.command;"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    given = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True, text=True)
    assert given.stdout.strip() == "[]"
    assert read({}) == OtelSettings()


async def test_metrics_can_be_scraped_without_any_collector(caplog):
    caplog.set_level(logging.INFO)
    async with telemetry(OtelSettings(), ScrapeAddress(host="127.0.0.1", port=0)) as it:
        it.sources.measured = Measurements(watchers=3)
        url = f"http://{it.metrics_address}/metrics"
        response = await asyncio.to_thread(urllib.request.urlopen, url, timeout=5)
        with response:
            assert b"stepgraph_watchers 3.0" in response.read()
        assert caplog.records[0].metrics_address == it.metrics_address
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(urllib.request.urlopen, url, timeout=5)


async def test_what_scraping_needs_is_named_if_it_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "stepgraph_server.telemetry.scraping", raising=False)
    with pytest.raises(SettingError, match=r"pip install 'stepgraph\[prometheus\]'"):
        telemetry(OtelSettings(), ScrapeAddress(host="127.0.0.1", port=0))


async def test_what_there_is_is_measured_only_if_there_are_metrics():
    async with telemetry(OtelSettings()) as it:
        async with asyncio.timeout(1):
            await it.measure(lambda: pytest.fail("nobody reads it"))
    async with telemetry(OtelSettings(), ScrapeAddress(host="127.0.0.1", port=0)) as it:
        measuring = asyncio.ensure_future(it.measure(lambda: Measurements(sessions=2)))
        await asyncio.sleep(0)
        assert it.sources.measured.sessions == 2
        measuring.cancel()


async def test_a_collector_that_is_away_does_not_keep_the_server(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    loop = asyncio.get_running_loop()
    settings = OtelSettings(traces=True, metrics=True, span_delay_s=0.01)
    async with telemetry(settings) as it:
        trace_ = trace()
        it.observer.durable(trace_, events(STARTED, ("run_completed", {})), 10, 6)
        began = loop.time()
    assert loop.time() - began < 3 * GOODBYE_S
    assert it.recorder.lost.unsent == 1


@pytest.mark.parametrize(
    ("variable", "text"),
    [("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"), ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip")],
)
async def test_an_exporter_that_can_not_be_made_keeps_no_server_from_starting(
    monkeypatch, caplog, variable, text
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv(variable, text)
    async with telemetry(OtelSettings(traces=True, metrics=True)) as it:
        assert it.recorder is None
    said = [each for each in caplog.records if each.action == "telemetry.ignored"]
    assert len(said) == 2
    assert text in said[0].expected
