"""Inputs and commands are values: equal if they say the same."""

from __future__ import annotations

from stepgraph_server.core import inputs


def test_inputs_that_say_the_same_are_equal() -> None:
    ref = inputs.AttemptRef(task_id="1/a/t0/e0", attempt=1)
    assert ref == inputs.AttemptRef(task_id="1/a/t0/e0", attempt=1)
    assert inputs.Cancel(reason="a") != inputs.Cancel(reason="b")


def test_limits_have_defaults() -> None:
    limits = inputs.RunLimits()
    assert limits.max_losses == 3
    assert limits.cancel_grace > 0
