"""ConditionCheck: what a condition gives, as text, under two names."""

from __future__ import annotations

import pytest

from stepgraph_server.core.actions import poll_action
from stepgraph_server.core.actions.step import Done
from tests.support.core_pieces import compiled, poll_of, state_of, text

GRAPH = compiled("nodes: [{id: a, condition_check: {condition: ready}}]")


@pytest.mark.parametrize(("value", "expected"), [("true", "true"), ("yes", "false")])
def test_it_stores_true_or_false(value: str, expected: str) -> None:
    done = poll_action(poll_of(state_of(GRAPH, ready=text(value)), "a"))
    assert done == Done(
        writes=(
            ("_condition_result", text(expected)),
            ("_condition_result.a", text(expected)),
        )
    )
