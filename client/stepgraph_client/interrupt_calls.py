"""Calls about questions that runs wait on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import interrupt_service_pb2
from stepgraph.v1.interrupt_pb2 import InterruptStatus
from stepgraph_client.call_groups import PAGE_SIZE, CallGroup
from stepgraph_client.identity import caller_name, new_request_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stepgraph.v1.interrupt_pb2 import Interrupt, InterruptAnswer


class InterruptCalls(CallGroup):
    """Lists and answers questions."""

    async def interrupts(
        self,
        run_id: str = "",
        *,
        include_descendants: bool = False,
        status: InterruptStatus.ValueType = InterruptStatus.INTERRUPT_STATUS_OPEN,
    ) -> AsyncIterator[Interrupt]:
        """Yield questions over all runs, or of one, oldest first."""
        request = interrupt_service_pb2.ListInterruptsRequest(
            namespace=self.namespace,
            run_id=run_id,
            include_descendants=include_descendants,
            status=status,
            page_size=PAGE_SIZE,
        )
        async for page in self._pages(self._stubs.interrupts.ListInterrupts, request):
            for question in page.questions:
                yield question

    async def get_interrupt(self, interrupt_id: str) -> Interrupt:
        """Read a question, open or not."""
        request = interrupt_service_pb2.GetInterruptRequest(
            namespace=self.namespace, interrupt_id=interrupt_id
        )
        response = await self._caller.unary(self._stubs.interrupts.GetInterrupt, request)
        return response.question

    async def answer(
        self, interrupt_id: str, answer: InterruptAnswer, *, answered_by: str = ""
    ) -> Interrupt:
        """Answer a question: `answer(id, proceed())`. The same answer again is fine, whoever gives it.

        `answered_by` says who answers; without it, the user and host that run this.

        Raises:
            NotFound: there is no such question.
            InvalidRequest: ANSWER_INVALID: the answer does not fit; the question stays open.
            WrongState: another answer was first, or the run went on, or is over.
        """
        request = interrupt_service_pb2.AnswerInterruptRequest(
            namespace=self.namespace,
            interrupt_id=interrupt_id,
            answer=answer,
            answered_by=answered_by or caller_name(),
            request_id=new_request_id(),
        )
        response = await self._caller.unary(self._stubs.interrupts.AnswerInterrupt, request)
        return response.question

    async def answer_external(
        self, token: str, answer: InterruptAnswer, *, answered_by: str = ""
    ) -> Interrupt:
        """Answer the question that waits for an external token; see `answer`."""
        request = interrupt_service_pb2.AnswerInterruptRequest(
            namespace=self.namespace,
            external_token=token,
            answer=answer,
            answered_by=answered_by or caller_name(),
            request_id=new_request_id(),
        )
        response = await self._caller.unary(self._stubs.interrupts.AnswerInterrupt, request)
        return response.question
