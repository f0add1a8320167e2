"""What a function of an executor may know of its task, and what it may show while it works.

Rules: everything here may be used from a function on the event loop and, but for what is awaited, from one in a thread.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Final, TypeVar

from stepgraph.v1 import task_pb2
from stepgraph_client.values import to_value

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from stepgraph.v1 import conversation_pb2, failure_pb2, state_pb2, value_pb2
    from stepgraph_client.stored_values import StoredValues

R = TypeVar("R")

MAX_CUSTOM_BYTES: Final = 64 * 1024


class TaskHost:
    """What contexts have in common: the loop, its thread, and the stored values."""

    __slots__ = ("loop", "thread_id", "values")

    def __init__(self, loop: asyncio.AbstractEventLoop, values: StoredValues) -> None:
        """Call it on the loop's thread."""
        self.loop: Final = loop
        self.thread_id: Final = threading.get_ident()
        self.values: Final = values


class TaskContext:
    """One attempt of a task."""

    __slots__ = ("_cancel_reason", "_host", "_show", "_started", "_task", "_text")

    def __init__(
        self,
        task: task_pb2.Task,
        host: TaskHost,
        show: Callable[[task_pb2.TaskProgress | None], None],
    ) -> None:
        """Made by the executor; `show` is called on the loop's thread, with None for a mere sign of life."""
        self._task: Final = task
        self._host: Final = host
        self._show: Final = show
        self._started: Final = host.loop.time()
        self._cancel_reason: str | None = None
        self._text: list[str] | None = None

    @property
    def run_id(self) -> str:
        """The run."""
        return self._task.task_id.partition("/")[0]

    @property
    def node_id(self) -> str:
        """The node that the task is for."""
        return self._task.node_id

    @property
    def task_id(self) -> str:
        """The full id of the task: the run's, a slash, and the task's within the run."""
        return self._task.task_id

    @property
    def attempt(self) -> int:
        """The attempt, from 1; counted up by each assignment."""
        return self._task.attempt

    @property
    def tries(self) -> int:
        """Tries so far, this one included."""
        return self._task.tries

    @property
    def idempotency_key(self) -> str:
        """The same on every attempt of this task: hand it to whatever must not do a thing twice."""
        return self._task.idempotency_key

    @property
    def traceparent(self) -> str:
        """W3C trace context. Empty if there is none."""
        return self._task.traceparent

    @property
    def tracestate(self) -> str:
        """W3C trace state. Empty if there is none."""
        return self._task.tracestate

    # ---- time ------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When the attempt's time is over, in the loop's time, as `asyncio.timeout_at` takes it; None if never."""
        run = self._task.limits.run
        limit_s = run.seconds + run.nanos / 1e9
        return self._started + limit_s if limit_s else None

    def time_left(self) -> float | None:
        """Return the seconds that are left of the attempt's time; None if it has no end."""
        deadline = self.deadline
        return None if deadline is None else max(0.0, deadline - self._host.loop.time())

    @property
    def cancelled(self) -> bool:
        """Whether the attempt is to stop. Functions in threads look at this now and then; others are cancelled."""
        return self._cancel_reason is not None

    @property
    def cancel_reason(self) -> str:
        """Why it is to stop. Empty if it is not."""
        return self._cancel_reason or ""

    def cancel(self, reason: str) -> None:
        """Note that the attempt is to stop. Called by the executor."""
        self._cancel_reason = reason

    def raise_if_cancelled(self) -> None:
        """End a function in a thread where it is, if it is to stop.

        Raises:
            asyncio.CancelledError: The attempt is to stop.
        """
        if self._cancel_reason is not None:
            raise asyncio.CancelledError(self._cancel_reason)

    # ---- progress --------------------------------------------------------------------------------

    @property
    def shown_text(self) -> str:
        """All text that was shown so far."""
        return "".join(self._text or ())

    def text_delta(self, text: str) -> None:
        """Show a piece of text, as a model writes it."""
        if self._text is None:
            self._text = []
        self._text.append(text)
        self._send(task_pb2.TaskProgress(text=task_pb2.TaskProgress.TextDelta(text=text)))

    def thinking_delta(self, text: str) -> None:
        """Show a piece of thought."""
        thinking = task_pb2.TaskProgress.ThinkingDelta(text=text)
        self._send(task_pb2.TaskProgress(thinking=thinking))

    def tool_args_delta(self, call_index: int, args: str, *, tool_name: str = "") -> None:
        """Show a piece of a tool call's arguments; the name goes with the first piece of a call."""
        delta = task_pb2.TaskProgress.ToolArgsDelta(
            call_index=call_index, tool_name=tool_name, args=args
        )
        self._send(task_pb2.TaskProgress(tool_args=delta))

    def progress(self, value: object) -> None:
        """Show anything else: text, whatever JSON has, a pydantic model.

        Raises:
            ValueError: It is above 64 KiB.
        """
        custom = task_pb2.TaskProgress.Custom(value=to_value(value))
        if custom.ByteSize() > MAX_CUSTOM_BYTES:
            message = f"progress has at most {MAX_CUSTOM_BYTES} bytes, not {custom.ByteSize()}"
            raise ValueError(message)
        self._send(task_pb2.TaskProgress(custom=custom))

    async def progress_text(self, text: str) -> None:
        """Show a piece of text, and let others have a turn, so that it is on its way before the next one."""
        self.text_delta(text)
        await asyncio.sleep(0)

    def alive(self) -> None:
        """Show nothing but that it still works. It starts a streaming task's idle limit anew, as all progress does."""
        self._send(None)

    def _send(self, progress: task_pb2.TaskProgress | None) -> None:
        if threading.get_ident() == self._host.thread_id:
            self._show(progress)
        else:
            self._host.loop.call_soon_threadsafe(self._show, progress)

    # ---- values ----------------------------------------------------------------------------------

    async def content(self, stored: value_pb2.StoredValue) -> bytes:
        """Return the content of a stored value. It is kept for a while, by its digest.

        Raises:
            NotFound: There is no such value.
            Unreachable: The server can't be reached.
        """
        return await self._host.values.content(stored)

    async def resolve(self, value: value_pb2.Value) -> value_pb2.Value:
        """Return a value with its content inside, if it is stored; else as it is. Raises as `content`."""
        return await self._host.values.resolve(value)

    async def text_of(self, block: conversation_pb2.TextBlock) -> str:
        """Return the text of a block of a message, wherever it is. Raises as `content`."""
        if block.WhichOneof("body") == "stored":
            return (await self.content(block.stored)).decode()
        return block.text

    def wait(self, awaitable: Coroutine[object, object, R]) -> R:
        """Wait for something on the event loop, from a function in a thread: `ctx.wait(ctx.content(stored))`.

        Raises:
            RuntimeError: It was called on the event loop, which would wait for itself.
        """
        if threading.get_ident() == self._host.thread_id:
            awaitable.close()
            message = "on the event loop, use `await`"
            raise RuntimeError(message)
        return asyncio.run_coroutine_threadsafe(awaitable, self._host.loop).result()


class ConditionContext(TaskContext):
    """One attempt to decide a condition, with what the node sees."""

    __slots__ = ()

    @property
    def _condition(self) -> task_pb2.TaskInput.Condition:
        return self._task.input.condition

    @property
    def name(self) -> str:
        """The condition's name."""
        return self._condition.name

    @property
    def description(self) -> str:
        """What it should decide."""
        return self._condition.description

    @property
    def variables(self) -> Mapping[str, value_pb2.Value]:
        """The variables of the node's view."""
        return self._condition.variables

    @property
    def last_result(self) -> value_pb2.Value | None:
        """The node's result."""
        condition = self._condition
        return condition.last_result if condition.HasField("last_result") else None

    @property
    def last_error(self) -> failure_pb2.Failure | None:
        """The carried error."""
        condition = self._condition
        return condition.last_error if condition.HasField("last_error") else None

    @property
    def decision(self) -> state_pb2.GraphDecision | None:
        """The carried decision."""
        condition = self._condition
        return condition.decision if condition.HasField("decision") else None

    @property
    def paradigm(self) -> str:
        """The carried paradigm. Empty if there is none."""
        return self._condition.paradigm

    @property
    def iterations(self) -> int:
        """How many supersteps have started."""
        return self._condition.iterations
