"""InterruptService: read and answer the questions that runs wait on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import interrupt_pb2, interrupt_service_pb2
from stepgraph_server.api import paging
from stepgraph_server.api.callers import caller_of, request_key
from stepgraph_server.api.references import refuse_missing_values
from stepgraph_server.api.requests import namespace_of
from stepgraph_server.core.errors import Refused, Violation
from stepgraph_server.core.instants import Instant
from stepgraph_server.storage.records import RunKey

if TYPE_CHECKING:
    from stepgraph_server.api.ports import Context, Engine
    from stepgraph_server.config import PageSettings
    from stepgraph_server.storage.interrupts import Interrupts
    from stepgraph_server.storage.runs import Runs
    from stepgraph_server.storage.values import Values


class InterruptService:
    """See interrupt_service.proto."""

    def __init__(
        self,
        *,
        interrupts: Interrupts,
        runs: Runs,
        values: Values,
        engine: Engine,
        pages: PageSettings,
    ) -> None:
        self._interrupts = interrupts
        self._runs = runs
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

    async def _refuse_if_child(self, namespace: str, run_id: str) -> None:
        """Raise Refused for a run that is no root: its descendants can't be told from the other runs of its tree."""
        record = await self._runs.get(RunKey(namespace, run_id))
        if record is None or not record.creation.parent_run_id:
            return
        path = "include_descendants"
        root = record.creation.root_run_id
        message = f"run {run_id!r} is a child run; ask for its root {root!r}, or leave this out"
        raise Refused(
            "INVALID_REQUEST",
            f"{path}: {message}",
            metadata={"field": path},
            violations=[Violation(path=path, message=message)],
        )

    async def ListInterrupts(
        self, request: interrupt_service_pb2.ListInterruptsRequest, context: Context
    ) -> interrupt_service_pb2.ListInterruptsResponse:
        """List questions, oldest first."""
        position = paging.decode_page(request.page_token, request, (int, str))
        limit = paging.entries(request.page_size, self._pages)
        run_id = request.run_id or None
        if run_id is not None and request.include_descendants:
            await self._refuse_if_child(namespace_of(request), run_id)
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
