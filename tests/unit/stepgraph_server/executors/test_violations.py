"""How a refusal is raised."""

from __future__ import annotations

import pytest

from stepgraph_server.core.errors import StepgraphError
from stepgraph_server.executors.violations import ViolationError, refuse


def test_a_refusal_says_where_what_and_why():
    with pytest.raises(ViolationError, match=r"hello\.namespace: is wrong") as caught:
        refuse("hello.namespace", "is wrong", "UNKNOWN_VARIANT")
    violation = caught.value.violation
    assert (violation.path, violation.reason) == ("hello.namespace", "UNKNOWN_VARIANT")
    assert isinstance(caught.value, StepgraphError)


def test_the_usual_reason_is_an_invalid_request():
    with pytest.raises(ViolationError) as caught:
        refuse("x", "y")
    assert caught.value.violation.reason == "INVALID_REQUEST"
