"""The context of one attempt of a model call, for tests of providers: what was shown is kept, stored values are in a dict."""

from __future__ import annotations

import asyncio

import grpc

from stepgraph.v1 import task_pb2
from stepgraph_client.errors import NotFound, Status
from stepgraph_client.task_context import TaskContext, TaskHost


class Values:
    """Stored values by their digests."""

    def __init__(self):
        self.contents = {}

    async def content(self, stored):
        if stored.digest not in self.contents:
            raise NotFound(
                Status(code=grpc.StatusCode.NOT_FOUND, message="no such value", metadata={})
            )
        return self.contents[stored.digest]


class Attempt:
    """One attempt; make it on the loop."""

    def __init__(self):
        self.shown = []
        self.values = Values()
        task = task_pb2.Task(task_id="r1/1/think/t0/e0", attempt=1, node_id="think")
        host = TaskHost(asyncio.get_running_loop(), self.values)
        self.ctx = TaskContext(task, host, self.shown.append)

    @property
    def pieces(self):
        """What was shown, without mere signs of life."""
        return [each for each in self.shown if each is not None]

    @property
    def text(self):
        return "".join(each.text.text for each in self.pieces)

    @property
    def thinking(self):
        return "".join(each.thinking.text for each in self.pieces)

    @property
    def tool_args(self):
        """Pieces of arguments, each as (index of the call, name, piece)."""
        found = [each.tool_args for each in self.pieces if each.HasField("tool_args")]
        return [(each.call_index, each.tool_name, each.args) for each in found]
