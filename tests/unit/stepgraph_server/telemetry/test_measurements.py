"""What there is at a moment."""

from __future__ import annotations

import dataclasses

import pytest

from stepgraph_server.telemetry.measurements import PERIOD_S, Measurements


def test_it_is_taken_whole_and_never_changed():
    it = Measurements(queued_tasks=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        it.queued_tasks = 4
    assert it.oldest_task_s == 0.0
    assert PERIOD_S <= 1
