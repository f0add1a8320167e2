"""ExecutorService: sessions, and what can be seen of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from stepgraph.v1 import executor_service_pb2
from stepgraph_server.api import paging
from stepgraph_server.api.requests import namespace_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from stepgraph_server.api.ports import Context, Engine, Executors, Sessions
    from stepgraph_server.config import PageSettings


class ExecutorService:
    """See executor_service.proto."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        executors: Executors,
        engine: Engine,
        pages: PageSettings,
    ) -> None:
        self._sessions = sessions
        self._executors = executors
        self._engine = engine
        self._pages = pages

    def Connect(self, frames: object, context: Context) -> AsyncGenerator[bytes, None]:
        """Serve one session. Frames are bytes in both directions: the session reads and writes them itself."""
        return self._sessions.connect(cast("AsyncIterator[bytes]", frames), context)

    async def ReadTaskInput(
        self, request: executor_service_pb2.ReadTaskInputRequest, context: Context
    ) -> AsyncGenerator[executor_service_pb2.ReadTaskInputResponse, None]:
        """Send an input that was too large for a frame."""
        content = await self._engine.task_input(
            namespace_of(request),
            request.attempt.task_id,
            request.attempt.attempt,
            request.instance_token,
        )
        size = self._pages.max_chunk_bytes
        # An empty input is one empty chunk: a stream without any would look as if it had been cut.
        for start in range(0, max(1, len(content)), size):
            yield executor_service_pb2.ReadTaskInputResponse(chunk=content[start : start + size])

    async def ListExecutors(
        self, request: executor_service_pb2.ListExecutorsRequest, context: Context
    ) -> executor_service_pb2.ListExecutorsResponse:
        """List executors by id."""
        position = paging.decode_page(request.page_token, request, (str,))
        limit = paging.entries(request.page_size, self._pages)
        found = self._executors.executors(namespace_of(request))
        if position:
            after = str(position[0])
            found = [executor for executor in found if executor.executor_id > after]
        page, is_more = paging.cut(
            found, limit, self._pages.max_response_bytes, lambda executor: executor.ByteSize()
        )
        response = executor_service_pb2.ListExecutorsResponse(executors=page)
        if is_more:
            response.next_page_token = paging.encode(request, (page[-1].executor_id,))
        return response
