"""InterruptService: read and answer the questions that runs wait on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import interrupt_pb2, interrupt_service_pb2
from stepgraph_server.api import paging
from stepgraph_server.api.callers import caller_of, request_key
from stepgraph_server.api.references import refuse_missing_values
from stepgraph_server.api.requests import namespace_of
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.instants import Instant

if TYPE_CHECKING:
    from stepgraph_server.api.ports import Context, Engine
    from stepgraph_server.config import PageSettings
    from stepgraph_server.storage.interrupts import Interrupts
    from stepgraph_server.storage.values import Values


class InterruptService:
    """See interrupt_service.proto."""

    def __init__(
        self, *, interrupts: Interrupts, values: Values, engine: Engine, pages: PageSettings
    ) -> None:
        self._interrupts = interrupts
        self._values = values
        self._engine = engine
        self._pages = pages

    async def AnswerInterrupt(
        self, request: interrupt_service_pb2.AnswerInterruptRequest, context: Context
    ) -> interrupt_service_pb2.AnswerInterruptResponse:
        """Answer a question, by its id or by the token that it waits for."""
        namespace = namespace_of(request)
        interrupt_id = request.interrupt_id
        if request.HasField("external_token"):
            found = await self._interrupts.get_by_token(namespace, request.external_token)
            if found is None:
                raise Refused(
                    "INTERRUPT_NOT_FOUND",
                    "no question waits for this token",
                    metadata={"interrupt_id": ""},
                )
            interrupt_id = found[0].interrupt_id
        await refuse_missing_values(request, namespace, self._values)
        caller = caller_of(context)
        question = await self._engine.answer(
            namespace,
            interrupt_id,
            request.answer,
            request.answered_by or caller.identity,
            request_key("AnswerInterrupt", request),
            traceparent=caller.traceparent,
        )
        return interrupt_service_pb2.AnswerInterruptResponse(question=question)

    async def GetInterrupt(
        self, request: interrupt_service_pb2.GetInterruptRequest, context: Context
    ) -> interrupt_service_pb2.GetInterruptResponse:
        """Read one question."""
        found = await self._interrupts.get(namespace_of(request), request.interrupt_id)
        if found is None:
            raise Refused(
                "INTERRUPT_NOT_FOUND",
                f"there is no question {request.interrupt_id}",
                metadata={"interrupt_id": request.interrupt_id},
            )
        question = interrupt_pb2.Interrupt.FromString(found[0].question)
        return interrupt_service_pb2.GetInterruptResponse(question=question)

    async def ListInterrupts(
        self, request: interrupt_service_pb2.ListInterruptsRequest, context: Context
    ) -> interrupt_service_pb2.ListInterruptsResponse:
        """List questions, oldest first."""
        position = paging.decode_page(request.page_token, request, (int, str))
        limit = paging.entries(request.page_size, self._pages)
        run_id = request.run_id or None
        # Every run is the root of its tree as long as runs have no child runs.
        alone, root = (None, run_id) if request.include_descendants else (run_id, None)
        found = await self._interrupts.list(
            namespace_of(request),
            alone,
            root,
            request.status or interrupt_pb2.INTERRUPT_STATUS_OPEN,
            (Instant(int(position[0])), str(position[1])) if position else None,
            limit + 1,
        )
        rows, is_more = paging.cut(
            [row for row, _ in found],
            limit,
            self._pages.max_response_bytes,
            lambda row: len(row.question),
        )
        response = interrupt_service_pb2.ListInterruptsResponse(
            questions=[interrupt_pb2.Interrupt.FromString(row.question) for row in rows]
        )
        if is_more:
            last = rows[-1]
            response.next_page_token = paging.encode(request, (last.open_time, last.interrupt_id))
        return response
