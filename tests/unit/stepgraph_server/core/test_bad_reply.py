"""The first fault of a reply ends its check."""

from __future__ import annotations

import pytest

from stepgraph_server.core.bad_reply import BadReply, refuse_violations
from stepgraph_server.core.errors import Violation


def test_no_violation_is_no_fault() -> None:
    refuse_violations([])


def test_the_first_violation_is_told_with_its_path() -> None:
    found = [
        Violation(path="update.variables.x", message="is not JSON"),
        Violation(path="y", message=""),
    ]
    with pytest.raises(BadReply) as caught:
        refuse_violations(found)
    assert (caught.value.path, caught.value.code) == ("update.variables.x", "STEP_REPLY_INVALID")


def test_what_is_too_large_keeps_its_code() -> None:
    """Programs can react to it by storing the value."""
    with pytest.raises(BadReply) as caught:
        refuse_violations([Violation(path="x", message="large", reason="PAYLOAD_TOO_LARGE")])
    assert caught.value.code == "PAYLOAD_TOO_LARGE"
