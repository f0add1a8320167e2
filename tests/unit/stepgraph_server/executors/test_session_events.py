"""What sessions are held under by default, and what comes out of them."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

from stepgraph_server.config import Settings
from stepgraph_server.executors.session_events import ByeReceived, SessionEvent, Terms


def test_the_default_terms_are_the_default_settings():
    terms, settings = Terms(), Settings()
    for name in ("ping_interval", "silence_limit", "lost_grace", "cancel_grace", "max_frame_bytes"):
        assert getattr(terms, name) == getattr(settings.session, name), name
    for name in ("max_inline_value_bytes", "max_stored_value_bytes", "max_labels"):
        assert getattr(terms, name) == getattr(settings.limits, name), name


def test_events_are_values():
    for event in get_args(SessionEvent):
        assert event.__dataclass_params__.frozen, event
    assert ByeReceived(reason="x") == ByeReceived(reason="x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        ByeReceived(reason="x").reason = "y"
