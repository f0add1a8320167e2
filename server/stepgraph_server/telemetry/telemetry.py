"""All that is recorded about a server: put together, begun and ended.

Rules: what is not asked for is not imported. Ending it takes a few seconds at most, whatever collectors do.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, TypeVar

from stepgraph_server.config import SettingError
from stepgraph_server.telemetry import names
from stepgraph_server.telemetry.measurements import PERIOD_S
from stepgraph_server.telemetry.metrics import Sources, metrics_of
from stepgraph_server.telemetry.otel_settings import Ignored
from stepgraph_server.telemetry.recorder import SpanRecorder
from stepgraph_server.telemetry.run_observer import RunObserver

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from opentelemetry.sdk.metrics.export import MetricReader

    from stepgraph_server.telemetry.measurements import Measurements
    from stepgraph_server.telemetry.metric_export import MetricExport
    from stepgraph_server.telemetry.otel_settings import OtelSettings
    from stepgraph_server.telemetry.projector import History
    from stepgraph_server.telemetry.scraping import Scraping

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

GOODBYE_S: Final = 2.0
"""How long the last spans and metrics may take to be sent, and then again to be cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeAddress:
    """Where metrics wait to be scraped; port 0 means any that is free."""

    host: str
    port: int


class Telemetry:
    """What is recorded. Use it as an async context, around everything that tells it something.

    Raises:
        SettingError: Metrics are to be scraped, and what that needs is not installed.
    """

    def __init__(
        self,
        settings: OtelSettings,
        history: History,
        version: str,
        scrape: ScrapeAddress | None = None,
    ) -> None:
        self._settings: Final = settings
        self._version: Final = version
        self._scrape: Final = scrape
        self._ignored = list(settings.ignored)
        self.recorder = self._usable(lambda: _recorder(settings, history, version), settings.traces)
        self._scraping = _scraping() if scrape is not None else None
        self.has_metrics: Final = settings.metrics or scrape is not None
        self.sources: Final = Sources(recorder=self.recorder)
        self._export: MetricExport | None = None
        #: Where metrics are scraped, with the port that was chosen; empty if they are not.
        self.metrics_address = ""
        self.observer: Final = RunObserver(
            settings.sampler if self.recorder is not None else None,
            self.recorder,
            self.sources.tally if self.has_metrics else None,
        )

    async def __aenter__(self) -> Self:
        """Begin. Raises OSError if metrics can't be listened for where they should."""
        if self._scraping is not None and self._scrape is not None:
            port = self._scraping.start(self._scrape.host, self._scrape.port)
            self.metrics_address = f"{self._scrape.host}:{port}"
        if self.has_metrics:
            self._export = self._exported()
        if self.recorder is not None:
            self.recorder.start()
        self._say()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Side by side: a collector that is away must not take the time of both, one after the other.
        await asyncio.gather(*(asyncio.to_thread(close) for close in self._closings()))

    async def measure(self, take: Callable[[], Measurements]) -> None:
        """Note what there is, again and again. Runs until it is cancelled; at once over if there are no metrics."""
        while self.has_metrics:
            self.sources.measured = take()
            await asyncio.sleep(PERIOD_S)

    def _closings(self) -> list[Callable[[], None]]:
        recorder, export, scraping = self.recorder, self._export, self._scraping
        closings: list[Callable[[], None]] = []
        if recorder is not None:
            closings.append(lambda: recorder.close(GOODBYE_S))
        if export is not None:
            closings.append(lambda: export.close(GOODBYE_S))
        if scraping is not None:
            closings.append(scraping.close)
        return closings

    def _exported(self) -> MetricExport:
        # Not before it is needed: importing it takes as long as half of what the server needs to start.
        from stepgraph_server.telemetry.exporting import resource  # noqa: PLC0415
        from stepgraph_server.telemetry.metric_export import (  # noqa: PLC0415
            MetricExport,
            otlp_reader,
        )

        settings = self._settings
        sending = self._usable(lambda: otlp_reader(settings.metric_interval_s), settings.metrics)
        # What is scraped first: it takes no time to close, and the other may take all there is.
        readers: list[MetricReader] = [] if self._scraping is None else [self._scraping.reader]
        if sending is not None:
            readers.append(sending)
        return MetricExport(metrics_of(self.sources), resource(self._version), readers)

    def _usable(self, make: Callable[[], _T], is_wanted: bool) -> _T | None:  # noqa: FBT001
        """Return what sends something, unless its variables can't be used: that must not keep a server from starting."""
        if not is_wanted:
            return None
        try:
            return make()
        except Exception as error:  # noqa: BLE001  # exporters raise what they like about their variables
            expected = f"what OpenTelemetry's exporter takes, so nothing is sent: {error}"
            self._ignored.append(Ignored(variable="OTEL_EXPORTER_OTLP_…", expected=expected))
            return None

    def _say(self) -> None:
        settings = self._settings
        for ignored in self._ignored:
            _log.warning(
                "This variable can't be used and is ignored",
                extra={
                    "action": names.TELEMETRY_IGNORED,
                    "variable": ignored.variable,
                    "expected": ignored.expected,
                },
            )
        if settings.traces or self.has_metrics:
            _log.info(
                "Traces or metrics are recorded",
                extra={
                    "action": names.TELEMETRY_STARTED,
                    "traces": self.recorder is not None,
                    "metrics": settings.metrics,
                    "sampled_ratio": 0 if self.recorder is None else settings.sampler.ratio,
                    "metrics_address": self.metrics_address,
                },
            )


def _recorder(settings: OtelSettings, history: History, version: str) -> SpanRecorder:
    # Not before it is needed, as above.
    from stepgraph_server.telemetry.exporting import (  # noqa: PLC0415
        OtlpSpans,
        SpanExporter,
        resource,
    )

    sink = OtlpSpans(SpanExporter(resource(version), version))
    return SpanRecorder(sink, history, settings.span_delay_s)


def _scraping() -> Scraping:
    try:
        from stepgraph_server.telemetry.scraping import Scraping  # noqa: PLC0415
    except ImportError as error:
        message = (
            f"metrics can't be scraped without {error.name}; pip install 'stepgraph[prometheus]'"
        )
        raise SettingError(name="metrics_address", source="", message=message) from error
    return Scraping()
