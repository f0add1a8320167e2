"""All that is recorded about a server: put together, begun and ended.

Rules: what is not asked for is not imported. Ending it takes a few seconds at most, whatever collectors do.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Self

from stepgraph_server.telemetry import names
from stepgraph_server.telemetry.recorder import SpanRecorder
from stepgraph_server.telemetry.run_observer import RunObserver

if TYPE_CHECKING:
    from types import TracebackType

    from stepgraph_server.telemetry.otel_settings import OtelSettings
    from stepgraph_server.telemetry.projector import History

_log = logging.getLogger(__name__)

GOODBYE_S: Final = 2.0
"""How long the last spans may take to be sent, and then again to be cut off."""


class Telemetry:
    """What is recorded. Use it as an async context, around everything that tells the observer something."""

    def __init__(self, settings: OtelSettings, history: History, version: str) -> None:
        self._settings: Final = settings
        self.recorder: SpanRecorder | None = None
        sampler = None
        if settings.traces:
            # Not before: importing it takes as long as half of what the server needs to start.
            from stepgraph_server.telemetry.exporting import OtlpSpans, resource  # noqa: PLC0415

            sink = OtlpSpans(resource(version), version)
            self.recorder = SpanRecorder(sink, history, settings.span_delay_s)
            sampler = settings.sampler
        self.observer: Final = RunObserver(sampler, self.recorder)

    async def __aenter__(self) -> Self:
        settings = self._settings
        for ignored in settings.ignored:
            _log.warning(
                "This variable can't be used and is ignored",
                extra={
                    "action": names.TELEMETRY_IGNORED,
                    "variable": ignored.variable,
                    "expected": ignored.expected,
                },
            )
        if settings.traces or settings.metrics:
            _log.info(
                "Traces or metrics are recorded",
                extra={
                    "action": names.TELEMETRY_STARTED,
                    "traces": settings.traces,
                    "metrics": settings.metrics,
                    "sampled_ratio": settings.sampler.ratio if settings.traces else 0,
                },
            )
        if self.recorder is not None:
            self.recorder.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.recorder is not None:
            await asyncio.to_thread(self.recorder.close, GOODBYE_S)
