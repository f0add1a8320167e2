"""Inputs and commands are values: equal if they say the same, and never changed."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from stepgraph_server.core import inputs


def test_equal_inputs_are_equal_and_can_not_be_changed() -> None:
    ref = inputs.AttemptRef(task_id="1/a/t0/e0", attempt=1)
    assert ref == inputs.AttemptRef(task_id="1/a/t0/e0", attempt=1)
    with pytest.raises(FrozenInstanceError):
        ref.attempt = 2  # type: ignore[misc]


def test_limits_have_defaults() -> None:
    limits = inputs.RunLimits()
    assert limits.max_losses == 3
    assert limits.cancel_grace > 0
