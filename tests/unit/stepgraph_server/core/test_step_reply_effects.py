"""Effects that can't be started: each is told with its path."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from stepgraph.v1 import transition_pb2
from stepgraph_client.files import parse_graph
from stepgraph_server.core.bad_reply import BadReply
from stepgraph_server.core.graph import GraphDefaults, compile_graph
from stepgraph_server.core.inputs import RunLimits
from stepgraph_server.core.step_reply_effects import MAX_SCHEMAS, check_await
from tests.support.core_pieces import activation_of, compiled, state_of

GRAPH = compiled("nodes: [{id: a, step: {program: p}}]\n")
TOOL = {"tool": {"name": "t"}}


def _check(*effects: dict[str, Any], graph: Any = GRAPH) -> None:
    awaited = ParseDict({"effects": list(effects)}, transition_pb2.Transition.Await())
    limits = RunLimits(max_fan_out=300)
    check_await(state_of(graph), activation_of(graph, "a"), awaited, "await", limits)


def _llm(**request: object) -> dict[str, Any]:
    return {"llm": {"request": request}}


@pytest.mark.parametrize(
    ("effect", "path", "code"),
    [
        ({}, "", "STEP_REPLY_INVALID"),
        ({"tool": {"name": "a b"}}, ".tool.name", "STEP_REPLY_INVALID"),
        ({"tool": {"name": "t", "args": "{"}}, ".tool.args", "STEP_REPLY_INVALID"),
        ({"tool": {"name": "t", "args": "3"}}, ".tool.args", "STEP_REPLY_INVALID"),
        ({"delegate": {}}, ".delegate.agent_kind", "STEP_REPLY_INVALID"),
        (
            {"delegate": {"agent_kind": "k", "task": "x" * 300_000}},
            ".delegate.task",
            "PAYLOAD_TOO_LARGE",
        ),
        ({"custom": {"kind": "-"}}, ".custom.kind", "STEP_REPLY_INVALID"),
        (
            {"custom": {"kind": "k", "payload": {"json": "{"}}},
            ".custom.payload",
            "STEP_REPLY_INVALID",
        ),
        ({"sleep": {}}, ".sleep", "STEP_REPLY_INVALID"),
        ({"sleep": {"duration": "-1s"}}, ".sleep.duration", "STEP_REPLY_INVALID"),
        ({"graph": {}}, ".graph.graph_ref", "STEP_REPLY_INVALID"),
        (_llm(model="m" * 200), ".llm.request.model", "STEP_REPLY_INVALID"),
        (_llm(temperature=3), ".llm.request.temperature", "STEP_REPLY_INVALID"),
        (_llm(max_tokens=0), ".llm.request.max_tokens", "STEP_REPLY_INVALID"),
        (_llm(output_schema="{"), ".llm.request.output_schema", "STEP_REPLY_INVALID"),
        (_llm(messages=[{}]), ".llm.request.messages[0].role", "STEP_REPLY_INVALID"),
        (_llm(tools=[{"name": "delegate"}]), ".llm.request.tools[0].name", "STEP_REPLY_INVALID"),
        (
            _llm(tools=[{"name": "t"}, {"name": "t"}]),
            ".llm.request.tools[1].name",
            "STEP_REPLY_INVALID",
        ),
        (
            {**TOOL, "options": {"retry": {"max_tries": 0}}},
            ".options.retry.max_tries",
            "STEP_REPLY_INVALID",
        ),
        (
            {**TOOL, "options": {"retry": {"factor": 0.5}}},
            ".options.retry.factor",
            "STEP_REPLY_INVALID",
        ),
        (
            {**TOOL, "options": {"retry": {"jitter": 2}}},
            ".options.retry.jitter",
            "STEP_REPLY_INVALID",
        ),
        (
            {**TOOL, "options": {"limits": {"run": "-1s"}}},
            ".options.limits.run",
            "STEP_REPLY_INVALID",
        ),
        (
            {**TOOL, "options": {"selector": {str(n): "" for n in range(65)}}},
            ".options.selector",
            "STEP_REPLY_INVALID",
        ),
    ],
)
def test_an_effect_is_refused_with_its_place(effect: dict[str, Any], path: str, code: str) -> None:
    with pytest.raises(BadReply) as caught:
        _check(TOOL, effect)
    assert (caught.value.path, caught.value.code) == (f"await.effects[1]{path}", code)


def test_good_effects_pass() -> None:
    _check(
        TOOL,
        _llm(
            temperature=0.5,
            max_tokens=5,
            output_schema="{}",
            tools=[{"name": "t", "input_schema": "{}"}],
        ),
        {"delegate": {"agent_kind": "k", "task": "t"}},
        {"custom": {"kind": "k", "payload": {"text": "x"}}},
        {"sleep": {"until": "2020-01-01T00:00:00Z"}},
        {
            **TOOL,
            "options": {"retry": {"max_tries": 2, "first_delay": "1s"}, "limits": {"run": "3s"}},
        },
    )


def test_a_model_call_needs_a_model_of_its_own_or_of_the_graph() -> None:
    text = "name: g\nstart: a\nnodes: [{id: a, step: {program: p}}]\n"
    bare = compile_graph(parse_graph(text).graph, GraphDefaults())
    _check(_llm(model="m"), graph=bare)
    with pytest.raises(BadReply, match="names no model"):
        _check(_llm(), graph=bare)


def test_more_than_a_turn_may_ask_for_is_refused() -> None:
    with pytest.raises(BadReply, match="301 entries, of at most 300") as caught:
        _check(*[TOOL] * 301)
    assert caught.value.code == "FAN_OUT_LIMIT"


def test_as_many_different_schemas_as_would_keep_others_waiting_are_refused() -> None:
    schemas = [_llm(output_schema=f'{{"title": "{n}"}}') for n in range(MAX_SCHEMAS + 1)]
    with pytest.raises(BadReply) as caught:
        _check(*schemas)
    assert caught.value.code == "FAN_OUT_LIMIT"


def test_a_wake_policy_of_a_newer_schema_is_refused() -> None:
    awaited = ParseDict({"effects": [TOOL], "wake": 99}, transition_pb2.Transition.Await())
    with pytest.raises(BadReply) as caught:
        check_await(state_of(GRAPH), activation_of(GRAPH, "a"), awaited, "await", RunLimits())
    assert caught.value.path == "await.wake"


def test_a_time_that_can_not_be_written_down_is_refused() -> None:
    effect = transition_pb2.Effect()
    effect.sleep.until.seconds = 2**60
    awaited = transition_pb2.Transition.Await(effects=[effect])
    with pytest.raises(BadReply) as caught:
        check_await(state_of(GRAPH), activation_of(GRAPH, "a"), awaited, "await", RunLimits())
    assert caught.value.path == "await.effects[0].sleep.until"


def test_a_duration_that_is_none_is_refused() -> None:
    effect = transition_pb2.Effect()
    effect.sleep.duration.nanos = 2_000_000_000
    awaited = transition_pb2.Transition.Await(effects=[effect])
    with pytest.raises(BadReply) as caught:
        check_await(state_of(GRAPH), activation_of(GRAPH, "a"), awaited, "await", RunLimits())
    assert caught.value.path == "await.effects[0].sleep.duration"
