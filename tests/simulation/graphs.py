"""Graphs by chance: forks, joins, loops with caps, conditions, models with tools, people, sleeps, signals, step programs, Maps.

Rules: `ACTIONS` and `BODIES` are the places for what the server learns to do: an entry that the server refuses as NOT_YET_SUPPORTED is
left out by itself. A definition that is not valid is thrown away, and the next one is tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.json_format import ParseDict

from stepgraph.v1 import graph_pb2
from stepgraph_server.app import graph_defaults
from stepgraph_server.core.graph import check_graph
from tests.simulation.answers import (
    AGENT,
    CONDITION,
    GOTO,
    GRAPH_TOOL,
    MODEL,
    RACER,
    SIGNAL,
)
from tests.simulation.child_graphs import NESTS, WAITS, WORKS
from tests.simulation.server import SETTINGS

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

MAX_NODES = 8
DEFAULTS = graph_defaults(SETTINGS)
RETRIED = ["FLAKED", "RESULT_INVALID", "PAYLOAD_TOO_LARGE", "RUN_LIMIT", "IDLE_LIMIT"]

_CALL = {"tool_call": {"tool_name": "find", "args_template": '{"q": "{{last?}}"}'}}
_MODEL = {"llm_infer": {"include_tool_definitions": True}}
#: What a node does, with how often it is chosen.
ACTIONS: list[tuple[int, dict[str, Any]]] = [
    (2, {"assign": {"set": {"log": "'x'", "total": "iterations"}}}),
    (1, {"assign": {"set": {"last": "'a'"}, "message_template": "at {{total?}}"}}),
    (1, {"assign": {"unset": ["last"]}}),
    (1, {"condition_check": {"condition": "last==a"}}),
    (1, {"condition_check": {"condition": "has_tool_calls"}}),
    (2, {"human_approval": {"description": "go on?"}}),
    (1, {"human_approval": {"description": "which?", "options": [{"id": "one"}, {"id": "two"}]}}),
    (3, _CALL),
    (1, {"tool_call": {"tool_name": "flaky", "args_template": "{}"}}),
    (2, {"delegate": {"agent_kind": AGENT, "task_template": "{{last?}}"}}),
    (3, _MODEL),
    (1, {"llm_infer": {"use_streaming": True, "prompt_template": "{{last?}}!"}}),
    (3, {"run_requested_tools": {}}),
    (1, {"run_requested_tools": {"max_concurrency": 1}}),
    (1, {"sleep": {"duration": "5s"}}),
    (1, {"sleep": {"duration": "40s"}}),
    (2, {"wait_signal": {"name": SIGNAL, "correlation": "of a node"}}),
    (1, {"wait_signal": {"name": SIGNAL, "correlation": "of a pair", "count": 2}}),
    (3, {"step": {"program": "p", "variables": ["log"]}}),
    (1, {"step": {"program": "p", "include_conversation": True, "max_turns": 3}}),
    (1, {"map": {"items": "[1, 'two', 3]", "body": {"node_id": "w_tool"}, "max_concurrency": 2}}),
    (1, {"map": {"items": "[1, 2]", "body": {"program": "w"}, "join": "JOIN_POLICY_ALL_SETTLED"}}),
    (1, {"map": {"items": "[]", "body": {"node_id": "w_ask"}}}),
    (2, {"subgraph": {"graph": {"definition": WORKS}, "output": {"last": "kept?"}}}),
    (2, {"subgraph": {"graph": {"definition": WAITS}, "input": {"input": "{{last?}}"}}}),
    (1, {"subgraph": {"graph": {"definition": NESTS}}}),
]
_CONDITIONS: list[dict[str, Any] | None] = [
    *[None] * 4,
    {"expression": {"cel": "has(vars.last)"}},
    {"state_equals": {"variable": "_approval", "value": "abort"}},
    {"state_equals": {"variable": "_approval", "value": "revise"}},
    {"state_equals": {"variable": "_choice", "value": "one"}},
    {"error_occurred": {}},
    {"iteration_exceeds": {"count": 3}},
    {"custom": {"name": CONDITION}},
    {"has_tool_calls": {}},
    {"is_final_answer": {}},
]
#: Nodes that run only as bodies of what is spawned.
BODIES: list[dict[str, Any]] = [
    {
        "id": "w_tool",
        "action": {"tool_call": {"tool_name": "find", "args_template": '{"q": "{{item}}"}'}},
    },
    {"id": "w_ask", "action": {"human_approval": {"description": "{{item}}?"}}},
    {"id": "w_nap", "action": {"sleep": {"duration": "9s"}}},
    {"id": "w_step", "action": {"step": {"program": "w", "variables": ["item", "last"]}}},
]
_SHAPES = ("chain", "fork", "loop", "any")


def graphs(dice: random.Random) -> Iterator[graph_pb2.StateGraph]:
    """Yield valid graphs, without end."""
    while True:
        definition = ParseDict(_definition(dice), graph_pb2.StateGraph())
        if not check_graph(definition, DEFAULTS).problems:
            yield definition


def _definition(dice: random.Random) -> dict[str, Any]:
    count = dice.randint(3, MAX_NODES)
    racing = dice.random() < 0.2
    nodes = [_node(dice, index, count, racing=racing) for index in range(count)]
    edges = [*_edges(dice, count)]
    edges += [
        {"source": node["id"], "target": node["action"]["step"]["program"].removeprefix(GOTO)}
        | {"handoff": True, "max_traversals": 2}
        for node in nodes
        if node["action"].get("step", {}).get("program", "").startswith(GOTO)
    ]
    edges += [
        {"source": f"n{source}", "target": f"n{count - 1}", "condition": {"otherwise": {}}}
        for source in range(count - 1)
        if dice.random() < 0.95 and _may_have_otherwise(f"n{source}", edges)
    ]
    more: dict[str, Any] = {"time_limit": "60s"} if racing and dice.random() < 0.3 else {}
    if dice.random() < 0.3:
        more["approval_filter"] = {"allow": ["add", "fl*"]}
    if dice.random() < 0.15:
        tool = {"name": GRAPH_TOOL, "description": "Solves.", "input_schema": '{"type": "object"}'}
        more["tools"] = [{"definition": tool, "graph": {"definition": dice.choice((WORKS, WAITS))}}]
    return {
        **more,
        "name": "g",
        "default_model": MODEL,
        "nodes": [*nodes, *_bodies(nodes)],
        "edges": edges,
        "entry_point": "n0",
        "terminal_nodes": [f"n{count - 1}"] if dice.random() < 0.4 else [],
        "reducers": {"log": "REDUCER_APPEND", "total": "REDUCER_SUM", "last": "REDUCER_REPLACE"},
        "max_iterations": dice.randint(8, 24),
        "retry": {"max_tries": 12, "retryable_codes": RETRIED},
    }


def races(definition: graph_pb2.StateGraph) -> bool:
    """Whether the course of a graph depends on who is first, by its own will."""
    return any(
        node.action.step.program == RACER or node.HasField("interrupt_options")
        for node in definition.nodes
    ) or bool(definition.HasField("time_limit"))


def _bodies(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the bodies that something may spawn: a program any of them, a Map what it names."""
    maps = [node["action"]["map"]["body"] for node in nodes if "map" in node["action"]]
    if any("step" in node["action"] for node in nodes) or any("program" in body for body in maps):
        return BODIES
    return [body for body in BODIES if {"node_id": body["id"]} in maps]


def _node(dice: random.Random, index: int, count: int, *, racing: bool) -> dict[str, Any]:
    action = dice.choices([each for _, each in ACTIONS], [weight for weight, _ in ACTIONS])[0]
    if "step" in action and dice.random() < 0.3:
        action = {"step": {**action["step"], "program": f"{GOTO}n{dice.randrange(count)}"}}
    if "step" in action and racing:
        action = {"step": {**action["step"], "program": RACER}}
    node: dict[str, Any] = {"id": f"n{index}", "action": action}
    if index and dice.random() < 0.25:
        node["join"] = "NODE_JOIN_ALL"
    if dice.random() < 0.12:
        node["interrupt"] = True
        if racing:
            deadline = {"deadline": "2s"}
            answer = {"default_answer": {"proceed": {}}} if dice.random() < 0.6 else {}
            node["interrupt_options"] = deadline | answer
    if "tool_call" in action or "delegate" in action:
        node["output_variable"] = dice.choice(("", "log", "last"))
    return node


def _edges(dice: random.Random, count: int) -> Iterator[dict[str, Any]]:
    shape = dice.choice(_SHAPES)
    for index in range(1, count):
        before = {"chain": index - 1, "fork": 0 if index < count - 1 else 1}.get(shape)
        yield _edge(dice, dice.randrange(index) if before is None else before, index)
    if shape == "fork":
        for index in range(2, count - 1):
            yield _edge(dice, index, count - 1)
    extra = {"chain": 1, "loop": 3}.get(shape, count)
    for _ in range(dice.randint(0, extra)):
        source, target = dice.randrange(count), dice.randrange(count)
        if shape == "loop":
            source, target = max(source, target), min(source, target)
        yield _edge(dice, source, target)


def _edge(dice: random.Random, source: int, target: int) -> dict[str, Any]:
    edge: dict[str, Any] = {"source": f"n{source}", "target": f"n{target}"}
    condition = dice.choice(_CONDITIONS)
    if condition is not None:
        edge["condition"] = condition
    if target <= source:
        edge["max_traversals"] = dice.randint(1, 3)
    return edge


def _may_have_otherwise(source: str, edges: list[dict[str, Any]]) -> bool:
    return all(
        "condition" in edge or "max_traversals" in edge
        for edge in edges
        if edge["source"] == source and not edge.get("handoff")
    )


__all__ = ["ACTIONS", "BODIES", "DEFAULTS", "MAX_NODES", "graphs", "races"]
