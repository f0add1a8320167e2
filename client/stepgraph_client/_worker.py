"""Tasks being worked on: functions are called, and how they end is handed to the session.

Rules: one asyncio task per attempt, and nothing else per attempt: no future, no queue. Whatever a function does, its attempt
ends with exactly one outcome, or with none if nobody wants it any more. Only what a function raises is logged, never what it
was given or gave.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from contextvars import copy_context
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import llm_pb2, task_pb2
from stepgraph_client import task_results
from stepgraph_client._functions import describe, key_of
from stepgraph_client._task_spans import working_on
from stepgraph_client.errors import NotFound, TooMuch
from stepgraph_client.task_errors import Failed, ToolError, TurnsNotHeld, failure_outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from concurrent.futures import Executor as Pool

    from stepgraph_client._functions import Function, Functions
    from stepgraph_client._session import ExecutorSession
    from stepgraph_client._session_events import Attempt
    from stepgraph_client.task_context import TaskContext, TaskHost

_log = logging.getLogger("stepgraph_client.executor")


class _GivenBack(Exception):
    """This executor can't work on the attempt; the server knows already. It stays in this file."""


class _Work:
    """One attempt that is worked on."""

    __slots__ = ("cancel_reason", "ctx", "in_thread", "running", "started", "task")

    def __init__(self, task: task_pb2.Task) -> None:
        self.task = task
        self.ctx: TaskContext | None = None
        self.running: asyncio.Task[None] | None = None
        #: Its function was called. An asyncio task that is cancelled before would never report.
        self.started = False
        self.in_thread = False
        self.cancel_reason: str | None = None


class Worker:
    """Calls functions for attempts."""

    def __init__(  # noqa: PLR0913  # who builds it passes each dependency by name
        self,
        *,
        executor_id: str,
        functions: Functions,
        session: ExecutorSession,
        host: TaskHost,
        pool: Pool,
        read_input: Callable[[task_pb2.Task], Awaitable[task_pb2.TaskInput]],
        wake: Callable[[], None],
    ) -> None:
        self._executor_id: Final = executor_id
        self._functions: Final = functions
        self._session: Final = session
        self._host: Final = host
        self._pool: Final = pool
        self._read_input: Final = read_input
        self._wake: Final = wake
        self._work: Final[dict[Attempt, _Work]] = {}

    def start(self, tasks: Sequence[task_pb2.Task], group: asyncio.TaskGroup) -> None:
        """Work on attempts that the session has taken."""
        for task in tasks:
            attempt = (task.task_id, task.attempt)
            work = self._work[attempt] = _Work(task)
            work.running = group.create_task(self._run(attempt, work))

    def cancel(self, attempts: Iterable[Attempt], reason: str) -> None:
        """Ask functions to stop: those on the loop are cancelled, those in threads see it in their context."""
        for attempt in attempts:
            work = self._work.get(attempt)
            if work is None:
                continue  # it has ended by itself
            work.cancel_reason = reason
            if work.ctx is not None:
                work.ctx.cancel(reason)
            if work.started and not work.in_thread and work.running is not None:
                work.running.cancel()

    def abandon(self) -> None:
        """Stop working on everything, and report nothing. Functions in threads run on, and nobody listens."""
        for work in self._work.values():
            if work.ctx is not None:
                work.ctx.cancel("the executor stops")
            if work.running is not None:
                work.running.cancel()

    # ---- one attempt -----------------------------------------------------------------------------

    async def _run(self, attempt: Attempt, work: _Work) -> None:
        outcome = pb.AttemptOutcome(task_id=attempt[0], attempt=attempt[1])
        try:
            function = await self._prepare(attempt, work)
            result = await self._call(function, work)
            if work.cancel_reason is None:
                outcome.succeeded.CopyFrom(result)
            else:
                _set_cancelled(outcome, result)
            data = await self._serialized(outcome)
        except _GivenBack:
            self._end(attempt)
            return
        except asyncio.CancelledError as error:
            if work.cancel_reason is not None:
                _set_cancelled(outcome, _shown_by(work))
            elif _is_cancelled():
                self._end(attempt)  # the executor stops; the server gives the task to another one
                return
            else:
                self._set_failed(outcome, work, error)
            data = outcome.SerializeToString()
        # Any exception of a user's function is a failure of its task. SystemExit too: a library that parses a command line, say,
        # raises it where it gives up, and all other work of this process would go with it.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            self._set_failed(outcome, work, error)
            data = outcome.SerializeToString()
        self._session.finish(attempt, data)
        self._end(attempt)

    async def _prepare(self, attempt: Attempt, work: _Work) -> Function:
        task = work.task
        if not task.HasField("input"):
            # It was too large for a frame.
            try:
                task.input.CopyFrom(await self._read_input(task))
            except NotFound as error:
                self._session.give_back(attempt, error.reason, "the attempt is not current")
                raise _GivenBack from error
        function = self._functions.find(task.input)
        if function is None:
            key = key_of(task.input)
            reason = "INVALID_REQUEST" if key[0] else "UNKNOWN_VARIANT"
            message = f"this executor has no function for {describe(key)}"
            self._session.give_back(attempt, reason, message)
            raise _GivenBack
        work.ctx = function.context_type(
            task, self._host, lambda progress: self._show(attempt, progress)
        )
        if work.cancel_reason is not None:
            work.ctx.cancel(work.cancel_reason)
            raise asyncio.CancelledError
        return function

    async def _call(self, function: Function, work: _Work) -> task_pb2.TaskResult:
        assert work.ctx is not None, "it was prepared"
        work.started = True
        try:
            with working_on(work.task):
                returned = await self._returned(
                    function.bind(work.task.input, work.ctx), function, work
                )
        except TurnsNotHeld as error:
            attempt = (work.task.task_id, work.task.attempt)
            self._session.give_back(attempt, "INVALID_REQUEST", str(error))
            raise _GivenBack from error
        except ToolError as error:
            if work.task.input.WhichOneof("kind") != "tool":
                raise
            return task_results.tool_error(error)
        return function.to_result(returned)

    async def _returned(
        self, call: Callable[[], object], function: Function, work: _Work
    ) -> object:
        if not function.is_async:
            return await self._call_in_thread(call, work)
        awaitable: Awaitable[object] = call()  # type: ignore[assignment]  # is_async says so
        return await awaitable

    async def _call_in_thread(self, call: Callable[[], object], work: _Work) -> object:
        work.in_thread = True
        # With the trace and whatever else is current here: a thread of a pool has what its last work left behind.
        run = copy_context().run
        returned = await self._host.loop.run_in_executor(self._pool, run, call)
        work.in_thread = False
        # A function that isn't declared `async` may still return something to wait for.
        return await returned if inspect.isawaitable(returned) else returned

    async def _serialized(self, outcome: pb.AttemptOutcome) -> bytes:
        data = outcome.SerializeToString()
        limit = self._session.limits.max_inline_value_bytes
        if len(data) <= limit:
            return data
        try:
            await self._host.values.externalize(outcome, limit)
        except TooMuch as error:
            message = f"the result can't be stored: {error}"
            raise Failed(
                "PAYLOAD_TOO_LARGE",
                message,
                retryable=False,
                category="limit",
                details=error.metadata,
            ) from error
        return outcome.SerializeToString()

    def _show(self, attempt: Attempt, progress: task_pb2.TaskProgress | None) -> None:
        if progress is None:
            self._session.live(attempt)
            self._wake()
        elif self._session.show(attempt, progress):
            self._wake()

    def _end(self, attempt: Attempt) -> None:
        self._work.pop(attempt, None)
        self._wake()

    def _set_failed(self, outcome: pb.AttemptOutcome, work: _Work, error: BaseException) -> None:
        outcome.failed.CopyFrom(failure_outcome(error, self._executor_id))
        code = outcome.failed.failure.code
        extra = {
            "action": "task.failed",
            "task_id": work.task.task_id,
            "attempt": work.task.attempt,
            "code": code,
        }
        # The exception's message may have a payload in it: it is in the traceback of a fault, and nowhere else.
        if isinstance(error, Failed):
            _log.info("the task %s has failed with %s", work.task.task_id, code, extra=extra)
        else:
            text = "the function for the task %s has raised"
            _log.warning(text, work.task.task_id, extra=extra, exc_info=error)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _set_cancelled(outcome: pb.AttemptOutcome, partial: task_pb2.TaskResult | None) -> None:
    usage = None if partial is None else task_results.usage_of(partial)
    outcome.cancelled.CopyFrom(pb.AttemptOutcome.Cancelled(partial=partial, usage=usage))


def _shown_by(work: _Work) -> task_pb2.TaskResult | None:
    """Return what a model has shown as its partial reply; other kinds of work have none by themselves."""
    text = "" if work.ctx is None else work.ctx.shown_text
    if not text or work.task.input.WhichOneof("kind") != "llm":
        return None
    partial = task_results.llm_result(text)
    partial.llm.stop_reason = llm_pb2.LLM_STOP_REASON_OTHER
    return partial
