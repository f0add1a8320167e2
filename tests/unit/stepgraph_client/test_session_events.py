"""What comes out of a session, and what never does."""

from __future__ import annotations

from typing import get_args

from stepgraph_client._session_events import ExecutorEvent, Identity


def test_events_are_values():
    for event in get_args(ExecutorEvent):
        assert event.__dataclass_params__.frozen, event


def test_an_identity_never_shows_its_secret():
    identity = Identity(executor_id="w", instance_token=b"secret-secret-16", labels={})
    assert "secret" not in repr(identity)
    assert repr(identity) == "Identity(default/w)"
