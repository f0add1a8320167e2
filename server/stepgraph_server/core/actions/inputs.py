"""Inputs of tasks that are small enough to be built when they are scheduled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepgraph.v1 import task_pb2

if TYPE_CHECKING:
    from stepgraph_server.core.state import RunState


@dataclass(frozen=True, slots=True)
class ReadyInput:
    """An input that is serialized already."""

    data: bytes

    def build(self, _: RunState) -> bytes:
        """Return the serialized TaskInput."""
        return self.data


def tool_input(name: str, args: str, call_id: str) -> ReadyInput:
    """Return the input of a tool call."""
    tool = task_pb2.TaskInput.Tool(name=name, args=args or "{}", call_id=call_id)
    return ReadyInput(task_pb2.TaskInput(tool=tool).SerializeToString())


def agent_input(kind: str, task: str) -> ReadyInput:
    """Return the input of an agent's task."""
    agent = task_pb2.TaskInput.Agent(agent_kind=kind, task=task)
    return ReadyInput(task_pb2.TaskInput(agent=agent).SerializeToString())
