"""Metrics to be scraped by Prometheus, over HTTP.

Rules: imported only if an address was given. It answers from threads of its own, so a scrape never waits for the loop, nor the
loop for a scrape.
"""

from __future__ import annotations

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import start_http_server


class Scraping:
    """An HTTP server for scrapes. `reader` is what fills it."""

    def __init__(self) -> None:
        # Not the process's own registry, in which whoever embeds the server has metrics of theirs.
        self._registry = CollectorRegistry()
        self.reader = PrometheusMetricReader(scope_info_enabled=False, registry=self._registry)
        self._stop = _nothing

    def start(self, host: str, port: int) -> int:
        """Begin to answer, and return the port. Raises OSError if that can't be listened on."""
        server, thread = start_http_server(port, host, self._registry)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        self._stop = stop
        return server.server_port

    def close(self) -> None:
        """Stop answering. It blocks for up to half a second."""
        self._stop()


def _nothing() -> None:
    pass
