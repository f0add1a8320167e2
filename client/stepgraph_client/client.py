"""`Client`: everything that a program asks of a server, except being an executor.

    async with Client("127.0.0.1:7233") as client:
        run = await client.start_run("react", input="What is the weather?")
        print(await run.result())

Rules: methods take and give messages of the schema, and Python values where the schema has a `Value`. Lists are async
iterators that turn their own pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import executor_service_pb2
from stepgraph_client.call_groups import PAGE_SIZE
from stepgraph_client.graph_calls import GraphCalls
from stepgraph_client.interrupt_calls import InterruptCalls
from stepgraph_client.run_calls import RunCalls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stepgraph.v1.executor_service_pb2 import Executor


class Client(RunCalls, GraphCalls, InterruptCalls):
    """A client of one server and namespace. Use it as an async context manager, or close it.

    Every method may raise `Refused` (the server said no; the subclass and `reason` say why) and `Unreachable` (the
    retries are used up). A client may be used by many tasks of one event loop at once.
    """

    async def executors(self) -> AsyncIterator[Executor]:
        """Yield the executors that are connected, or were within their grace, by id."""
        request = executor_service_pb2.ListExecutorsRequest(
            namespace=self.namespace, page_size=PAGE_SIZE
        )
        async for page in self._pages(self._stubs.executors.ListExecutors, request):
            for executor in page.executors:
                yield executor
