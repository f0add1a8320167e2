"""A turn of the loop that takes long is said, and not for each one that does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING

from stepgraph_server.telemetry.histogram import Histogram
from stepgraph_server.telemetry.lag import MAX_LAG_S, QUIET_S, LagMeter, watch_lag

if TYPE_CHECKING:
    import pytest


def test_what_is_short_is_not_said() -> None:
    """Sleeps always end a little late."""
    meter = LagMeter()
    assert [meter.note(lag, 0.0) for lag in (0.0, 0.01, MAX_LAG_S)] == [None] * 3


def test_what_lags_for_long_is_said_once_a_period_with_the_worst_of_it() -> None:
    """Also if the last turn of the period was a short one."""
    meter = LagMeter()
    assert meter.note(0.3, 0.0) == 0.3
    assert meter.note(0.9, 1.0) is None
    assert meter.note(0.5, 2.0) is None
    assert meter.note(0.0, QUIET_S) == 0.9
    assert meter.note(0.0, 10 * QUIET_S) is None
    assert meter.note(0.4, 10 * QUIET_S) == 0.4


def test_every_lag_is_counted_if_somebody_counts() -> None:
    """Also those that are too short to be said; a clock that jumps back counts as none."""
    histogram = Histogram((0.1,))
    meter = LagMeter(histogram)
    for lag in (0.05, 0.2, -1.0):
        meter.note(lag, 0.0)
    assert list(histogram.cumulative()) == [("0.1", 2), ("+Inf", 3)]


async def test_a_turn_that_hogs_the_loop_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """As a warning, with its length."""
    watching = asyncio.create_task(watch_lag())
    await asyncio.sleep(0)
    time.sleep(MAX_LAG_S + 0.15)  # noqa: ASYNC251  # this is what must be seen
    async with asyncio.timeout(5):
        while not caplog.records:  # noqa: ASYNC110  # a log has no event
            await asyncio.sleep(0.01)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    record = caplog.records[0]
    assert (record.levelno, record.action) == (logging.WARNING, "loop.lagged")
    assert record.milliseconds > MAX_LAG_S * 1_000
