"""Metrics to be scraped."""

from __future__ import annotations

import socket
import urllib.request

import pytest
from opentelemetry.sdk.resources import Resource

from stepgraph_server.telemetry.metric_export import MetricExport
from stepgraph_server.telemetry.metrics import Sources, metrics_of
from stepgraph_server.telemetry.scraping import Scraping


@pytest.fixture
def scraping():
    it = Scraping()
    yield it
    it.close()


def test_metrics_are_answered_over_http_in_prometheus_own_form(scraping):
    export = MetricExport(metrics_of(Sources()), Resource({}), [scraping.reader])
    port = scraping.start("127.0.0.1", 0)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
        lines = response.read().decode().splitlines()
    assert 'stepgraph_runs_ended_total{status="failed"} 0.0' in lines
    assert "stepgraph_queue_oldest_age_seconds 0.0" in lines
    assert 'stepgraph_loop_lag_bucket_total{le="+Inf"} 0.0' in lines
    export.close(1.0)


def test_a_port_in_use_is_an_error_of_the_system(scraping):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match=r"[Aa]ddress"):
            scraping.start("127.0.0.1", taken.getsockname()[1])


def test_two_in_one_process_do_not_share_their_metrics(scraping):
    other = Scraping()
    assert other._registry is not scraping._registry
    other.close()
