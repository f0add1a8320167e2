"""A superstep that was recorded must be the one that the rules give."""

from __future__ import annotations

import pytest

from stepgraph.v1 import event_pb2
from stepgraph_server.core.superstep import apply_superstep_started, barrier_reached
from tests.support.core_pieces import activation_of, compiled, state_of

GRAPH = compiled("nodes: [{id: a, assign: {}}]")


def test_a_superstep_of_other_nodes_is_not_guessed() -> None:
    event = event_pb2.RunEvent(
        superstep_started=event_pb2.SuperstepStarted(superstep=1, nodes=["b"])
    )
    with pytest.raises(ValueError, match=r"should run \['a'\]"):
        apply_superstep_started(state_of(GRAPH), event)


def test_the_barrier_is_reached_when_all_have_ended() -> None:
    state = state_of(GRAPH)
    assert barrier_reached(state)
    state.activations["1/a"] = activation_of(GRAPH, "a")
    assert not barrier_reached(state)
