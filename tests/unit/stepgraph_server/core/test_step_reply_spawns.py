"""What can't be spawned. The scenarios play most of it in a run."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from stepgraph.v1 import transition_pb2
from stepgraph_server.core.bad_reply import BadReply
from stepgraph_server.core.inputs import RunLimits
from stepgraph_server.core.step_reply_spawns import BODY_ACTIONS, MAX_DEPTH, check_spawn
from stepgraph_server.core.validation import actions
from tests.support.core_pieces import activation_of, compiled, state_of

GRAPH = compiled(
    "nodes: [{id: a, step: {program: p}}, {id: plain, assign: {}}]\nedges: [{from: a, to: plain}]\n"
)
WORK = {"body": {"program": "w"}}


def _check(*specs: dict[str, Any], depth: int = 0, **fields: Any) -> None:
    activation = activation_of(GRAPH, "a")
    for _ in range(depth):
        inner = activation_of(GRAPH, "a")
        inner.parent, activation = activation, inner
    tree = {"specs": list(specs), **fields}
    spawn = ParseDict(tree, transition_pb2.Transition.Spawn())
    check_spawn(state_of(GRAPH), activation, spawn, "spawn", RunLimits(max_fan_out=3))


@pytest.mark.parametrize(
    ("specs", "path", "code"),
    [
        ([], ".specs", "EMPTY_SPAWN"),
        ([WORK] * 4, ".specs", "FAN_OUT_LIMIT"),
        ([{}], ".specs[0].body", "STEP_REPLY_INVALID"),
        ([{"body": {"program": "a b"}}], ".specs[0].body.program", "STEP_REPLY_INVALID"),
        ([{"body": {"nodeId": "nosuch"}}], ".specs[0].body.node_id", "STEP_REPLY_INVALID"),
        ([{"body": {"nodeId": "plain"}}], ".specs[0].body.node_id", "STEP_REPLY_INVALID"),
        ([{**WORK, "input": {"json": "{"}}], ".specs[0].input", "STEP_REPLY_INVALID"),
        ([{**WORK, "label": "x" * 129}], ".specs[0].label", "STEP_REPLY_INVALID"),
        ([{**WORK, "label": "1"}, WORK], ".specs[1].label", "DUPLICATE_LABEL"),
    ],
)
def test_it_is_refused_with_its_field(specs: list[dict[str, Any]], path: str, code: str) -> None:
    with pytest.raises(BadReply) as caught:
        _check(*specs)
    assert (caught.value.path, caught.value.code) == (f"spawn{path}", code)


def test_a_join_of_a_newer_schema_is_refused() -> None:
    with pytest.raises(BadReply) as caught:
        _check(WORK, join=99)
    assert caught.value.path == "spawn.join"


def test_it_is_not_deeper_than_anybody_can_follow() -> None:
    _check(WORK, depth=MAX_DEPTH - 1)
    with pytest.raises(BadReply) as caught:
        _check(WORK, depth=MAX_DEPTH)
    assert caught.value.code == "FAN_OUT_LIMIT"


def test_a_program_may_spawn_its_own_node() -> None:
    _check({"body": {"nodeId": "a"}, "input": {"text": "x" * 20_000}}, WORK)


def test_bodies_of_programs_are_those_of_graphs() -> None:
    assert BODY_ACTIONS == actions.BODY_ACTIONS
