"""Graphs that a step program can't run: each is told with its path."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from stepgraph.v1 import transition_pb2
from stepgraph_server.core.bad_reply import BadReply
from stepgraph_server.core.step_reply_graphs import MAX_DEFINITION_BYTES, check_graphs

GOOD = {"name": "g", "entry_point": "a", "nodes": [{"id": "a", "action": {"assign": {}}}]}


def _check(*effects: dict[str, Any]) -> None:
    awaited = ParseDict({"effects": list(effects)}, transition_pb2.Transition.Await())
    check_graphs(awaited.effects, "effects")


def _graph(ref: dict[str, Any], **effect: Any) -> dict[str, Any]:
    return {"graph": {"graph_ref": ref}, **effect}


def test_a_reference_a_definition_and_the_same_version_can_be_run() -> None:
    limits = {"limits": {"run": "5s", "total": "9s"}, "selector": {"zone": "east"}}
    _check(
        {"tool": {"name": "t"}},
        _graph({"reference": "other@3"}, options=limits),
        _graph({"definition": GOOD}),
        _graph({"same_version": {}}),
    )


@pytest.mark.parametrize(
    ("effect", "path", "code"),
    [
        (_graph({"reference": "no such"}), ".graph.graph_ref.reference", "STEP_REPLY_INVALID"),
        (_graph({}), ".graph.graph_ref", "STEP_REPLY_INVALID"),
        (
            _graph({"definition": {**GOOD, "entry_point": "b"}}),
            ".graph.graph_ref.definition.entry_point",
            "GRAPH_INVALID",
        ),
        (
            {"graph": {"graph_ref": {"reference": "g"}, "input": {"json": "{"}}},
            ".graph.input",
            "STEP_REPLY_INVALID",
        ),
        (
            _graph({"reference": "g"}, options={"retry": {"max_tries": 2}}),
            ".options.retry",
            "STEP_REPLY_INVALID",
        ),
        (
            _graph({"reference": "g"}, options={"limits": {"idle": "2s"}}),
            ".options.limits.idle",
            "STEP_REPLY_INVALID",
        ),
    ],
)
def test_a_graph_is_refused_with_its_place(effect: dict[str, Any], path: str, code: str) -> None:
    with pytest.raises(BadReply) as bad:
        _check({"tool": {"name": "t"}}, effect)
    assert (bad.value.path, bad.value.code) == (f"effects[1]{path}", code)


def test_all_definitions_of_a_reply_together_have_a_size() -> None:
    """They are checked while every other run waits."""
    large = {**GOOD, "metadata": {"note": "x" * (MAX_DEFINITION_BYTES // 2)}}
    _check(_graph({"definition": large}))
    with pytest.raises(BadReply, match="register the graph") as bad:
        _check(_graph({"definition": large}), _graph({"definition": large}))
    assert bad.value.code == "PAYLOAD_TOO_LARGE"
    assert bad.value.path == "effects[1].graph.graph_ref.definition"
