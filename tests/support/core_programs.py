"""Step programs by chance, and graphs of them: what they answer depends on what they are asked, never on when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.json_format import ParseDict
from hypothesis import assume
from hypothesis import strategies as st

from stepgraph.v1 import graph_pb2, transition_pb2
from stepgraph_server.core.graph import GraphDefaults, check_graph, compile_graph

if TYPE_CHECKING:
    import random

    from stepgraph_server.core.graph import CompiledGraph
    from stepgraph_server.core.state import Task

BODIES: list[dict[str, Any]] = [
    {"node_id": "w_tool"},
    {"node_id": "w_ask"},
    {"node_id": "w_nap"},
    {"node_id": "w_step"},
    {"program": "w"},
]
_EFFECTS: list[dict[str, Any]] = [
    {"tool": {"name": "t"}},
    {"custom": {"kind": "c", "payload": {"text": "x"}}, "options": {"retry": {"max_tries": 1}}},
    {"delegate": {"agent_kind": "a", "task": "t"}},
    {"sleep": {"duration": "30s"}},
    {"sleep": {"duration": "0s"}},
]
MAX_DEPTH = 2
_LAST_TURN = 4


def reply_of(task: Task, dice: random.Random, *, racing: bool) -> transition_pb2.StepReply:
    """Return what a program answers to a poll. Without `racing` nothing in it depends on who ends first."""
    activation = task.activation
    tree: dict[str, Any] = {}
    depth = activation.id.count("/s")
    kinds = ["await", "await", "suspend", "done", "done"]
    kinds += ["spawn"] * (2 if depth < MAX_DEPTH else 0)
    kinds += ["goto"] * bool(depth == 0 and activation.node.handoffs)
    kind = "done" if task.turn >= _LAST_TURN else dice.choice(kinds)
    if dice.random() < 0.04:
        kind = "wrong"
    tree["transition"] = _TRANSITIONS[kind](task, dice, racing)
    if depth == 0 and dice.random() < 0.5:
        tree["update"] = {"variables": {"log": {"text": task.id}, "last": {"text": "p"}}}
    tree["holds_turns"] = dice.random() < 0.5
    return ParseDict(tree, transition_pb2.StepReply())


def _await(_: Task, dice: random.Random, racing: bool) -> dict[str, Any]:
    effects = dice.choices(_EFFECTS, k=dice.randint(1, 3))
    wake = "WAKE_POLICY_EACH" if racing and dice.random() < 0.4 else "WAKE_POLICY_ALL"
    return {"await_effects": {"effects": effects, "wake": wake}}


def _spawn(_: Task, dice: random.Random, racing: bool) -> dict[str, Any]:
    joins = ["JOIN_POLICY_ALL", "JOIN_POLICY_ALL_SETTLED", *["JOIN_POLICY_FIRST"] * racing]
    specs = [
        {"body": dice.choice(BODIES), "input": {"text": f"i{index}"}}
        for index in range(dice.randint(1, 3))
    ]
    spawn = {"specs": specs, "join": dice.choice(joins), "max_concurrency": dice.randint(0, 2)}
    return {"spawn": spawn}


def _suspend(task: Task, dice: random.Random, racing: bool) -> dict[str, Any]:
    wanted: dict[str, Any] = {"reason": {"human": {"prompt": f"turn {task.turn}?"}}}
    if racing and dice.random() < 0.5:
        wanted["timeout"] = "20s"
        if dice.random() < 0.7:
            wanted["default_answer"] = {"text": "late"}
    return {"suspend": wanted}


def _goto(task: Task, dice: random.Random, _: bool) -> dict[str, Any]:
    target = dice.choice(sorted(task.activation.node.handoffs))
    return {"goto": {"target": target, "carry": {"text": "carried"}}}


_TRANSITIONS: dict[str, Any] = {
    "await": _await,
    "spawn": _spawn,
    "suspend": _suspend,
    "goto": _goto,
    "done": lambda task, _, __: {"done": {"value": {"text": f"{task.id} is done"}}},
    "wrong": lambda _, __, ___: {"goto": {"target": "nowhere"}},
}

_NODES: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"step": {"program": "p", "variables": ["log"]}},
        {"step": {"program": "p", "input_template": '"{{last_result?}}"', "max_turns": 4}},
        {"step": {"program": "p", "include_conversation": True}},
        {
            "map": {
                "items": "[1, 'two', {'three': 3}]",
                "body": {"node_id": "w_tool"},
                "max_concurrency": 2,
            }
        },
        {"map": {"items": "[1, 2]", "body": {"program": "w"}, "join": "JOIN_POLICY_ALL_SETTLED"}},
        {"map": {"items": "[]", "body": {"node_id": "w_ask"}}},
        {"sleep": {"duration": "10s"}},
        {"assign": {"set": {"log": "'x'"}}},
        {"tool_call": {"tool_name": "t", "args_template": "{}"}},
    ]
)
_BODY_NODES: list[dict[str, Any]] = [
    {"id": "w_tool", "action": {"tool_call": {"tool_name": "t", "args_template": '"{{item}}"'}}},
    {"id": "w_ask", "action": {"human_approval": {"description": "{{item}}?"}}},
    {"id": "w_nap", "action": {"sleep": {"duration": "15s"}}},
    {"id": "w_step", "action": {"step": {"program": "w", "variables": ["item", "last"]}}},
]
_BODY_NODES[0]["action"]["tool_call"]["args_template"] = '{"q": "{{item}}", "n": "{{item_index}}"}'


@st.composite
def program_graphs(draw: st.DrawFn) -> CompiledGraph:
    """Return a compiled graph with step programs, Maps, and bodies that only they run."""
    count = draw(st.integers(1, 4))
    nodes: list[dict[str, Any]] = [
        {"id": f"n{index}", "action": draw(_NODES)} for index in range(count)
    ]
    nodes[0]["action"] = {"step": {"program": "p", "variables": ["log"]}}
    edges: list[dict[str, Any]] = []
    for index in range(1, count):
        source = draw(st.integers(0, index - 1))
        edges.append({"source": f"n{source}", "target": f"n{index}"})
        if draw(st.booleans()):
            edges[-1]["condition"] = draw(
                st.sampled_from([{"error_occurred": {}}, {"otherwise": {}}])
            )
    for node in nodes:
        if draw(st.integers(0, 4)) == 0:
            node["interrupt"] = True
        if draw(st.integers(0, 3)) == 0:
            node["join"] = "NODE_JOIN_ALL"
        if "step" in node["action"] and draw(st.booleans()):
            target = draw(st.integers(0, count - 1))
            edge = {"source": node["id"], "target": f"n{target}", "handoff": True}
            edges.append({**edge, "max_traversals": draw(st.integers(1, 2))})
    definition = ParseDict(
        {
            "name": "g",
            "nodes": [*nodes, *_BODY_NODES],
            "edges": edges,
            "entry_point": "n0",
            "reducers": {"log": "REDUCER_APPEND"},
            "max_iterations": 8,
            "retry": {"max_tries": 2, "first_delay": "1s", "jitter": 0},
        },
        graph_pb2.StateGraph(),
    )
    assume(not check_graph(definition, GraphDefaults()).problems)
    return compile_graph(definition, GraphDefaults())


__all__ = ["program_graphs", "reply_of"]
