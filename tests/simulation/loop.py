"""A loop in virtual time on which several processes live, each of which can be killed.

Rules: what belongs to a process is what was scheduled in its context. After `kill` nothing of it runs any more, not even a
`finally`; and what it was in the middle of ends right there. There are no threads: what is handed to one is done at once.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

from tests.support.engine_time import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)

#: So many callbacks are far more than any course takes; a course that needs more turns in a circle.
MAX_CALLBACKS = 3_000_000


class Killed(BaseException):
    """The process that runs was killed. Nothing catches it, as nothing catches SIGKILL."""


class Stuck(SystemExit):
    """The course turns in a circle. No error, because a loop hands errors on and goes on; this ends it."""


class Process:
    """Something that lives, and may be killed."""

    def __init__(self, loop: SimulatedLoop, name: str) -> None:
        self.loop = loop
        self.name = name
        self.alive = True
        #: Called by the world, once it is dead.
        self.on_death: Callable[[], None] = lambda: None
        self._context = contextvars.copy_context()
        self._context.run(_PROCESS.set, self)
        # Kept, or a coroutine that will never go on might be closed, and that would run its `finally`.
        self._tasks: list[asyncio.Task[Any]] = []
        loop.processes.append(self)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Let a coroutine run as a part of this process."""
        task = self.loop.create_task(work, context=self._context.copy())
        task.add_done_callback(self._look_at, context=self.loop.root.copy())
        return task

    def _look_at(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Killed):
            self.loop.trouble(f"{self.name}: a task ended with {error!r}")

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function as a part of this process, now. If that kills it, the caller goes on."""
        try:
            return self._context.copy().run(function, *args)
        except Killed:
            if self.alive:
                raise
            return None

    def later(
        self, delay_s: float, function: Callable[..., Any], *args: Any
    ) -> asyncio.TimerHandle:
        """Run a function as a part of this process, later."""
        return self.loop.call_later(delay_s, function, *args, context=self._context.copy())

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Remember a task that was made inside."""
        self._tasks.append(task)

    def kill(self) -> None:
        """End the process at once. Raises Killed if it is the one that runs."""
        self.alive = False
        self.loop.forget(self)
        self.loop.soon(self.on_death)
        if _PROCESS.get() is self:
            raise Killed


class SimulatedLoop(VirtualLoop):
    """The loop of one course."""

    def __init__(self) -> None:
        super().__init__()
        self.callbacks = 0
        #: All that ever were.
        self.processes: list[Process] = []
        self.trouble: Callable[[str], None] = lambda _: None
        self.root = contextvars.copy_context()
        self.set_task_factory(_make_task)
        self.set_exception_handler(_take_error)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        self.callbacks += 1
        if self.callbacks > MAX_CALLBACKS:
            message = f"{MAX_CALLBACKS:,} callbacks and no end"
            raise Stuck(message)
        handle = super().call_soon(callback, *args, context=context)
        process = handle._context.get(_PROCESS)
        if process is not None and not process.alive:
            handle.cancel()
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        """Do at once what a thread would do."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  # raised where it is awaited, as from a thread
            done.set_exception(error)
        return done

    def later(
        self, delay_s: float, function: Callable[..., Any], *args: Any
    ) -> asyncio.TimerHandle:
        """Run a function that belongs to no process: the world itself."""
        return self.call_later(delay_s, function, *args, context=self.root.copy())

    def soon(self, function: Callable[..., Any], *args: Any) -> asyncio.Handle:
        """Run a function of the world itself in the next turn."""
        return self.call_soon(function, *args, context=self.root.copy())

    def forget(self, process: Process) -> None:
        """Drop whatever is planned for a process."""
        for handle in (*self._ready, *self._scheduled):
            if not handle.cancelled() and handle._context.get(_PROCESS) is process:
                handle.cancel()


def _make_task(loop: Any, work: Any, **options: Any) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, **options)
    context = options.get("context")
    process = context.get(_PROCESS) if context is not None else _PROCESS.get()
    if process is not None:
        process.keep(task)
    return task


def _take_error(loop: Any, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, Killed):
        return
    loop.trouble(f"unhandled: {context['message']} {error!r}")


__all__ = ["Killed", "Process", "SimulatedLoop", "Stuck"]
