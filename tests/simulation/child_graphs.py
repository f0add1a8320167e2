"""Graphs that other graphs run: as a node, as an effect of a step program, and as a tool."""

from __future__ import annotations

from typing import Any

_CALL = {"tool_call": {"tool_name": "find", "args_template": '{"q": "{{input?}}"}'}}

#: Works, and keeps what came of it.
WORKS: dict[str, Any] = {
    "name": "works",
    "entry_point": "c",
    "nodes": [{"id": "c", "action": _CALL, "output_variable": "kept"}],
}
#: Asks a person, thinks, sleeps and waits for a signal.
WAITS: dict[str, Any] = {
    "name": "waits",
    "default_model": "m",
    "entry_point": "c0",
    "nodes": [
        {"id": "c0", "action": {"human_approval": {"description": "a child asks"}}},
        {"id": "c1", "action": {"llm_infer": {"prompt_template": "{{input?}}"}}},
        {"id": "c2", "action": {"sleep": {"duration": "3s"}}},
        {"id": "c3", "action": {"wait_signal": {"name": "sig", "correlation": "of a child"}}},
    ],
    "edges": [{"source": f"c{index}", "target": f"c{index + 1}"} for index in range(3)],
}
#: Runs another graph.
NESTS: dict[str, Any] = {
    "name": "nests",
    "entry_point": "c",
    "nodes": [
        {
            "id": "c",
            "action": {"subgraph": {"graph": {"definition": WAITS}, "input": {"input": "x"}}},
        }
    ],
}

ALL = (WORKS, WAITS, NESTS)

__all__ = ["ALL", "NESTS", "WAITS", "WORKS"]
