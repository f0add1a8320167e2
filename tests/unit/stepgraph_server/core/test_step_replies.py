"""Replies that can't be recorded: each is told with its turn, its field and its code. The scenarios play them in a run."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from stepgraph.v1 import failure_pb2, task_pb2, transition_pb2
from stepgraph_server.core.inputs import RunLimits
from stepgraph_server.core.results import stored_digests
from stepgraph_server.core.step_replies import accept_reply
from tests.support.core_pieces import compiled, started

GRAPH = compiled(
    """
nodes:
  - {id: a, step: {program: p}}
  - {id: b, assign: {}}
edges:
  - {from: a, to: b, handoff: true}
reducers: {total: sum}
paradigms: {calm: {system_prompt: be calm}}
"""
)
DIGEST = "sha256:" + "0" * 64


def _judge(tree: dict[str, Any]) -> tuple[failure_pb2.Failure | None, transition_pb2.StepReply]:
    run = started(GRAPH)
    reply = ParseDict(tree, transition_pb2.StepReply())
    task = run.state.tasks["1/a/t0/poll"]
    return accept_reply(run.state, task, reply, RunLimits(max_fan_out=3)), reply


def _update(**update: object) -> dict[str, Any]:
    return {"update": update, "transition": {"done": {}}}


@pytest.mark.parametrize(
    ("tree", "code", "field"),
    [
        ({}, "STEP_REPLY_INVALID", "transition"),
        ({"transition": {"await_effects": {}}}, "EMPTY_AWAIT", "transition.await_effects.effects"),
        ({"transition": {"goto": {"target": "a"}}}, "HANDOFF_MISSING", "transition.goto.target"),
        (
            {"transition": {"goto": {"target": "b", "carry": {"json": "{"}}}},
            "STEP_REPLY_INVALID",
            "transition.goto.carry",
        ),
        (
            {"transition": {"done": {"value": {"json": "{"}}}},
            "STEP_REPLY_INVALID",
            "transition.done.value",
        ),
        (
            _update(variables={"_choice": {"text": "x"}}),
            "STEP_REPLY_INVALID",
            "update.variables._choice",
        ),
        (_update(variables={"total": {"text": "x"}}), "REDUCER_TYPE", "update.variables"),
        (_update(paradigm="calmer"), "PARADIGM_UNKNOWN", "update.paradigm"),
        (
            _update(decision={"switch_paradigm": {"paradigm": "x"}}),
            "PARADIGM_UNKNOWN",
            "update.decision.switch_paradigm.paradigm",
        ),
        (_update(messages=[{}]), "STEP_REPLY_INVALID", "update.messages[0].role"),
    ],
)
def test_a_reply_is_refused_with_the_field_that_is_wrong(
    tree: dict[str, Any], code: str, field: str
) -> None:
    found, _ = _judge(tree)
    assert found is not None
    assert (found.code, found.details["field"]) == (code, field)
    assert found.message.startswith("turn 0 of 'p': ")
    assert not found.retryable


def test_what_is_close_is_named() -> None:
    found, _ = _judge(_update(paradigm="calmer"))
    assert found is not None
    assert "Did you mean calm?" in found.message


def test_a_good_reply_is_recorded_as_it_is() -> None:
    found, _ = _judge(_update(variables={"total": {"json": "3"}}, paradigm="calm"))
    assert found is None


def test_the_count_of_calls_is_the_server_s() -> None:
    found, reply = _judge(_update(decision={"tool_calls": {"count": 9, "calls": [{"id": "1"}]}}))
    assert found is None
    assert reply.update.decision.tool_calls.count == 1


@pytest.mark.parametrize(
    "tree",
    [
        {"transition": {"done": {"value": {"stored": {"digest": DIGEST}}}}},
        {"transition": {"goto": {"carry": {"stored": {"digest": DIGEST}}}}},
        {"transition": {"suspend": {"default_answer": {"stored": {"digest": DIGEST}}}}},
        {"transition": {"spawn": {"specs": [{}, {"input": {"stored": {"digest": DIGEST}}}]}}},
        {
            "transition": {
                "await_effects": {
                    "effects": [{"custom": {"payload": {"stored": {"digest": DIGEST}}}}]
                }
            }
        },
        _update(variables={"x": {"stored": {"digest": DIGEST}}}),
    ],
)
def test_stored_values_are_found_wherever_they_stand(tree: dict[str, Any]) -> None:
    """Whoever delivers a reply looks whether they exist."""
    reply = ParseDict(tree, transition_pb2.StepReply())
    assert stored_digests(task_pb2.TaskResult(step=reply)) == [DIGEST]


def test_a_reply_without_stored_values_has_none() -> None:
    reply = ParseDict(
        {"transition": {"await_effects": {"effects": [{"tool": {"name": "t"}}]}}},
        transition_pb2.StepReply(),
    )
    assert stored_digests(task_pb2.TaskResult(step=reply)) == []


def test_a_terminal_node_ends_the_run_and_goes_nowhere() -> None:
    graph = compiled(
        "end: [a]\nnodes: [{id: a, step: {program: p}}, {id: b, assign: {}}, {id: s, assign: {}}]\nstart: s\n"
        "edges: [{from: s, to: a}, {from: s, to: b}, {from: a, to: b, handoff: true}]\n"
    )
    run = started(graph)
    reply = ParseDict({"transition": {"goto": {"target": "b"}}}, transition_pb2.StepReply())
    found = accept_reply(run.state, run.state.tasks["2/a/t0/poll"], reply, RunLimits())
    assert found is not None
    assert found.code == "HANDOFF_MISSING"
    assert "terminal" in found.message


def test_a_token_that_another_run_waits_for_is_taken() -> None:
    run = started(GRAPH)
    reply = ParseDict({"transition": {"done": {}}}, transition_pb2.StepReply())
    task = run.state.tasks["1/a/t0/poll"]
    found = accept_reply(run.state, task, reply, RunLimits(), taken=True)
    assert found is not None
    assert found.code == "TOKEN_TAKEN"
