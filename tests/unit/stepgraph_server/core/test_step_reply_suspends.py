"""What a program can't wait for. The scenarios play each case in a run."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from stepgraph.v1 import transition_pb2
from stepgraph_server.core.bad_reply import BadReply
from stepgraph_server.core.step_reply_suspends import check_suspend, refuse_taken
from tests.support.core_pieces import compiled, state_of

GRAPH = compiled("nodes: [{id: a, step: {program: p}}]\n")


def _check(tree: dict[str, Any]) -> None:
    state = state_of(GRAPH)
    state.external_tokens.add("used")
    check_suspend(state, ParseDict(tree, transition_pb2.Transition.Suspend()), "suspend")


@pytest.mark.parametrize(
    ("tree", "path", "code"),
    [
        ({}, ".reason", "STEP_REPLY_INVALID"),
        (
            {"reason": {"human": {"prompt": "x" * 20_000}}},
            ".reason.human.prompt",
            "PAYLOAD_TOO_LARGE",
        ),
        (
            {"reason": {"external": {"token": "t" * 257}}},
            ".reason.external.token",
            "STEP_REPLY_INVALID",
        ),
        ({"reason": {"external": {"token": "used"}}}, ".reason.external.token", "TOKEN_TAKEN"),
        ({"reason": {"signal": {"name": "a b"}}}, ".reason.signal.name", "STEP_REPLY_INVALID"),
        (
            {"reason": {"signal": {"name": "s", "count": 1001}}},
            ".reason.signal.count",
            "STEP_REPLY_INVALID",
        ),
        (
            {"reason": {"signal": {"name": "s", "correlation": "c" * 257}}},
            ".reason.signal.correlation",
            "STEP_REPLY_INVALID",
        ),
        ({"reason": {"human": {}}, "timeout": "-1s"}, ".timeout", "STEP_REPLY_INVALID"),
    ],
)
def test_it_is_refused_with_its_field(tree: dict[str, Any], path: str, code: str) -> None:
    with pytest.raises(BadReply) as caught:
        _check(tree)
    assert (caught.value.path, caught.value.code) == (f"suspend{path}", code)


def test_a_token_is_not_said() -> None:
    with pytest.raises(BadReply) as caught:
        _check({"reason": {"external": {"token": "used"}}})
    assert "used" not in caught.value.message.replace("used once", "")


def test_what_can_be_waited_for_passes() -> None:
    schema = '{"type": "string"}'
    human = {"reason": {"human": {"prompt": "p", "json_schema": schema}}}
    _check({**human, "timeout": "5s", "default_answer": {"text": "x"}})
    _check({"reason": {"external": {"token": "free"}}})
    refuse_taken(taken=False)
