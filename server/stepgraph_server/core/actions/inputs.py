"""Inputs of tasks that are small enough to be built at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepgraph.v1 import task_pb2

if TYPE_CHECKING:
    from stepgraph.v1.edge_condition_pb2 import EdgeCondition
    from stepgraph_server.core.state import RunState
    from stepgraph_server.core.view import View


@dataclass(slots=True)
class ReadyInput:
    """An input that is serialized already."""

    data: bytes

    def build(self, _: RunState) -> bytes:
        """Return the serialized TaskInput."""
        return self.data


#: Of a sleep: nobody gets it.
NO_INPUT = ReadyInput(b"")


def tool_input(name: str, args: str, call_id: str) -> ReadyInput:
    """Return the input of a tool call."""
    message = task_pb2.TaskInput()
    tool = message.tool
    tool.name = name
    tool.args = args or "{}"
    if call_id:
        tool.call_id = call_id
    return ReadyInput(message.SerializeToString())


def agent_input(kind: str, task: str) -> ReadyInput:
    """Return the input of an agent's task."""
    agent = task_pb2.TaskInput.Agent(agent_kind=kind, task=task)
    return ReadyInput(task_pb2.TaskInput(agent=agent).SerializeToString())


def condition_input(condition: EdgeCondition.Custom, view: View) -> ReadyInput:
    """Return the input of a condition that an executor decides: what the node's own view has."""
    carried = view.carried
    task = task_pb2.TaskInput.Condition(
        name=condition.name,
        description=condition.description,
        variables=view.variables(),
        last_result=carried.last_result,
        last_error=carried.last_error,
        decision=carried.decision,
        paradigm=carried.paradigm,
        iterations=view.iterations,
    )
    return ReadyInput(task_pb2.TaskInput(condition=task).SerializeToString())
