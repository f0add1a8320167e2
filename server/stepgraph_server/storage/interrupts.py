"""The port of questions: what runs wait for, over all runs of a namespace. Written by appends only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from stepgraph_server.core.instants import Instant
    from stepgraph_server.storage.records import QuestionRow, RunKey


class Interrupts(Protocol):
    """Questions of all namespaces. A later append with the same interrupt id replaces the row."""

    async def get(self, namespace: str, interrupt_id: str) -> tuple[QuestionRow, RunKey] | None:
        """Return a question and the run that asks, or None."""
        ...

    async def get_by_token(
        self, namespace: str, external_token: str
    ) -> tuple[QuestionRow, RunKey] | None:
        """Return the question that waits for a token; if none is open, the one that was opened last; or None."""
        ...

    async def list(
        self,
        namespace: str,
        run_id: str | None,
        root_run_id: str | None,
        status: int,
        after: tuple[Instant, str] | None,
        limit: int,
    ) -> list[tuple[QuestionRow, RunKey]]:
        """Return questions, oldest first (open_time, then interrupt_id).

        Args:
            namespace: Where to look.
            run_id: Only questions of this run; None for all.
            root_run_id: Only questions of this root and of all runs below it; None for all.
            status: Only of this InterruptStatus; 0 for all.
            after: The (open_time, interrupt_id) of the last one of the page before; None for the first page.
            limit: The most to return.
        """
        ...
