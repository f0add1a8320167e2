"""Inputs of tasks: serialized once."""

from __future__ import annotations

from stepgraph.v1 import edge_condition_pb2, task_pb2
from stepgraph_server.core.actions.inputs import agent_input, condition_input, tool_input
from stepgraph_server.core.state import Carried, Delta
from stepgraph_server.core.view import View
from tests.support.core_pieces import compiled, state_of, text

STATE = state_of(compiled("nodes: [{id: a, assign: {}}]"), x=text("1"))


def test_a_tool_gets_its_arguments_and_an_object_if_there_are_none() -> None:
    made = task_pb2.TaskInput.FromString(tool_input("t", "", "c").build(STATE))
    assert made.tool == task_pb2.TaskInput.Tool(name="t", args="{}", call_id="c")


def test_an_agent_gets_its_task() -> None:
    made = task_pb2.TaskInput.FromString(agent_input("k", "do").build(STATE))
    assert made.agent == task_pb2.TaskInput.Agent(agent_kind="k", task="do")


def test_a_condition_gets_the_nodes_own_view() -> None:
    condition = edge_condition_pb2.EdgeCondition.Custom(name="good", description="?")
    view = View(STATE, Carried(paradigm="p"), Delta(overlay={"y": text("2")}))
    made = task_pb2.TaskInput.FromString(condition_input(condition, view).build(STATE)).condition
    assert (made.name, made.description, made.paradigm) == ("good", "?", "p")
    assert dict(made.variables) == {"x": text("1"), "y": text("2")}
    assert not made.HasField("last_result")
