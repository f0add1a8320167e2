"""The context of one attempt of a model call, for tests of providers: what was shown is kept, stored values are in a dict."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import grpc

from stepgraph.v1 import task_pb2
from stepgraph_client.errors import NotFound, Status
from stepgraph_client.task_context import TaskContext, TaskHost

if TYPE_CHECKING:
    from stepgraph.v1.value_pb2 import StoredValue
    from stepgraph_client.stored_values import StoredValues


class Values:
    """Stored values by their digests."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    async def content(self, stored: StoredValue) -> bytes:
        """Return what a test put there."""
        if stored.digest not in self.contents:
            raise NotFound(
                Status(code=grpc.StatusCode.NOT_FOUND, message="no such value", metadata={})
            )
        return self.contents[stored.digest]


class Attempt:
    """One attempt; make it on the loop."""

    def __init__(self) -> None:
        self.shown: list[task_pb2.TaskProgress | None] = []
        self.values = Values()
        task = task_pb2.Task(task_id="r1/1/think/t0/e0", attempt=1, node_id="think")
        # It has what contexts use of the class, and no server behind it.
        host = TaskHost(asyncio.get_running_loop(), cast("StoredValues", self.values))
        self.ctx = TaskContext(task, host, self.shown.append)

    @property
    def pieces(self) -> list[task_pb2.TaskProgress]:
        """What was shown, without mere signs of life."""
        return [each for each in self.shown if each is not None]

    @property
    def text(self) -> str:
        return "".join(each.text.text for each in self.pieces)

    @property
    def thinking(self) -> str:
        return "".join(each.thinking.text for each in self.pieces)

    @property
    def tool_args(self) -> list[tuple[int, str, str]]:
        """Pieces of arguments, each as (index of the call, name, piece)."""
        found = [each.tool_args for each in self.pieces if each.HasField("tool_args")]
        return [(each.call_index, each.tool_name, each.args) for each in found]
