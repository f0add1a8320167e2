"""Changes outlive their callers.

Rules: a call's deadline, or a caller that goes away, cancels the task that serves the call. What changes something therefore runs
in a task of its own, which belongs to a group that only the end of the server waits for: a change is carried out whole or was
never begun, whatever became of the call.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Self, TypeVar

from stepgraph_server.api.errors import refusal_of
from stepgraph_server.core.errors import Refused
from stepgraph_server.telemetry import names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class Changes:
    """Carries changes out. Use it as a context: leaving it waits for all that was begun; see `settle` for a bound."""

    def __init__(self, max_pending: int) -> None:
        self._max_pending = max_pending
        self._pending = 0
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[object]] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._group.__aexit__(kind, error, traceback)

    async def settle(self, seconds: float) -> None:
        """Wait for what was begun, and give up what takes longer: it was never promised to anybody."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=seconds)
        for task in late:
            task.cancel()

    @property
    def pending(self) -> int:
        """How many changes are under way."""
        return self._pending

    async def carry_out(self, change: Callable[[], Awaitable[T]]) -> T:
        """Carry a change out, and return or raise what it does. If the caller is cancelled, the change goes on.

        Raises:
            Refused: OVERLOADED; the change was not begun.
        """
        if self._pending >= self._max_pending:
            raise Refused(
                "OVERLOADED",
                f"{self._pending:,} changes are under way; try again later",
                metadata={"limit_name": "max_pending_changes"},
            )
        self._pending += 1
        # The caller waits for this and not for the task, which is thereby shielded. asyncio.shield would do the same with
        # two more callbacks and a second turn of the loop: 15 us a change, 11 without it.
        heard: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        task = self._group.create_task(self._settle(change, heard))
        self._tasks.add(task)

        def forget(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            # It may have been given up before it ran at all.
            heard.cancel()

        task.add_done_callback(forget)
        try:
            return await heard
        except asyncio.CancelledError:
            # The caller may go away just when its answer was there.
            if not heard.cancelled() and isinstance(error := heard.exception(), Exception):
                _log_fault(error)
            raise

    async def _settle(self, change: Callable[[], Awaitable[T]], heard: asyncio.Future[T]) -> None:
        # An exception must not leave the task: it would cancel every other change of the group.
        try:
            value = await change()
        except Exception as error:  # noqa: BLE001  # whatever it is, it goes to the caller
            if heard.cancelled():
                _log_fault(error)
            else:
                heard.set_exception(error)
        else:
            if not heard.cancelled():
                heard.set_result(value)
        finally:
            self._pending -= 1


def _log_fault(error: Exception) -> None:
    # Nobody is left to hear what becomes of it, so a fault must at least be in the log.
    if refusal_of(error) is None:
        _logger.error(
            "A change failed after its caller had gone",
            exc_info=error,
            extra={"action": names.CALL_FAULT},
        )
