"""All that is recorded about a server, put together."""

from __future__ import annotations

import logging
import subprocess
import sys

from stepgraph_server.telemetry.otel_settings import Ignored, OtelSettings, read
from stepgraph_server.telemetry.telemetry import Telemetry


def telemetry(settings):
    return Telemetry(settings, lambda *_: None, version="1")


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
