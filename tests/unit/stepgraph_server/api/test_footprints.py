"""Where a run has been is counted from its events."""

from __future__ import annotations

from google.protobuf.json_format import ParseDict

from stepgraph.v1 import event_pb2
from stepgraph_server.api.footprints import Footprints


def walked(*events):
    footprints = Footprints()
    for event in events:
        footprints.add(ParseDict(event, event_pb2.RunEvent()))
    return footprints.path()


def superstep(*nodes):
    return {"superstep_started": {"nodes": nodes}}


def edge(edge_id, verdict="EDGE_VERDICT_FOLLOWED"):
    return {"edge_id": edge_id, "verdict": verdict}


def test_nodes_are_counted_when_they_start_and_are_current_until_they_end():
    path = walked(
        superstep("a"),
        {"node_completed": {"activation_id": "1/a", "node_id": "a", "edges": [edge("a.b")]}},
        superstep("a", "b", "c", "d"),
        {"node_failed": {"activation_id": "2/b", "node_id": "b", "edges": [edge("b.c")]}},
        {"node_cancelled": {"activation_id": "2/c", "node_id": "c"}},
    )

    assert path.node_counts == {"a": 2, "b": 1, "c": 1, "d": 1}
    assert path.edge_counts == {"a.b": 1, "b.c": 1}
    assert path.current == {"a", "d"}


def test_only_edges_that_were_followed_count():
    path = walked(
        superstep("a"),
        {
            "edges_evaluated": {
                "activation_id": "1/a",
                "edges": [edge("x"), edge("y", "EDGE_VERDICT_NOT_HELD"), edge("x")],
            }
        },
    )

    assert path.edge_counts == {"x": 2}


def test_work_that_a_node_spawned_is_not_the_node():
    path = walked(
        superstep("map"),
        {"node_completed": {"activation_id": "1/map/t0/s0", "node_id": "map"}},
    )

    assert path.current == {"map"}


def test_nothing_is_current_at_the_end():
    path = walked(superstep("a"), {"run_failed": {}}, {"limit_neared": {}}, {})

    assert path.current == frozenset()
