"""An action that says nothing of its end changes nothing."""

from __future__ import annotations

from stepgraph_server.core.done import Done


def test_an_empty_end_hands_everything_on():
    """No result, no writes, no messages, and the carried part as it was."""
    done = Done()

    assert (done.value, done.messages, done.writes) == (None, (), ())
    assert (done.decides, done.paradigm, done.error) == (False, None, None)
