"""HumanApproval: its question comes first, so there is nothing left to do."""

from __future__ import annotations

from stepgraph_server.core.actions import poll_action
from stepgraph_server.core.actions.step import Done
from tests.support.core_pieces import compiled, poll_of, state_of


def test_it_hands_everything_on() -> None:
    graph = compiled("nodes: [{id: a, human_approval: Go on?}]")
    assert poll_action(poll_of(state_of(graph), "a")) == Done()
