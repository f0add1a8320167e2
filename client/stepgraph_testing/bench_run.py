"""A run at a workbench: waited for without waiting, and looked at.

Rules: a wait returns as soon as what it waits for is there, lets the clock jump if nothing else is under way, and fails with what the
run waits for if that can't help. What one looks at is as it was when the last wait returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from stepgraph.v1 import event_pb2
from stepgraph_client.errors import RunCancelled, RunFailed
from stepgraph_testing.history import History, Path, TaskSeen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stepgraph.v1 import conversation_pb2, failure_pb2, interrupt_pb2
    from stepgraph_client import Client
    from stepgraph_client.run_calls import RunHandle, RunState


class Stuck(AssertionError):
    """A run waits for something that won't come by itself. The message says for what."""


class Bench(Protocol):
    """Where a run is; the workbench is one."""

    @property
    def client(self) -> Client:
        """A client of the server that has the run."""
        ...

    async def wait(self, run: BenchRun, holds: Callable[[], bool], what: str) -> None:
        """Return once something holds of a run. Raises Stuck."""
        ...


class BenchRun:
    """One run; `Workbench.start` makes it."""

    def __init__(self, bench: Bench, handle: RunHandle) -> None:
        self._bench: Final = bench
        self.handle: Final = handle
        self.history = History(())
        self._state: RunState | None = None

    def __repr__(self) -> str:
        return f"<run {self.run_id}\n{self.history.story()}>"

    # ---- waiting ---------------------------------------------------------------------------------

    async def finished(self) -> BenchRun:
        """Return once the run is over, however it has ended; it is this run.

        Raises:
            Stuck: It waits for something that won't come by itself.
        """
        await self._until(lambda: self.history.status != "open", "to end")
        self._state = await self.handle.state()
        return self

    async def result(self) -> object:
        """Wait for the end, and return the output as Python has it.

        Raises:
            RunFailed, RunCancelled: It has ended otherwise.
            Stuck: As `finished`.
        """
        await self.finished()
        run = await self.handle.wait()
        if self.status == "failed":
            raise RunFailed(run)
        if self.status == "cancelled":
            raise RunCancelled(run)
        return await self._bench.client.get_value(run.result.output)

    async def question(self, node_id: str = "") -> interrupt_pb2.Interrupt:
        """Return the oldest open question, of a node if it is named, once there is one.

        Raises:
            Stuck: The run has ended, or waits for something else.
        """

        def there() -> list[interrupt_pb2.Interrupt]:
            return [each for each in self.questions if node_id in {"", each.node_id}]

        await self._until(
            lambda: bool(there()), f"to ask something{' at ' + node_id if node_id else ''}"
        )
        return there()[0]

    async def reached(self, holds: Callable[[History], bool], what: str = "to come so far") -> None:
        """Return once something holds of the history: `await run.reached(lambda so_far: "act" in so_far.path)`."""
        await self._until(lambda: holds(self.history), what)

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        await self._bench.wait(self, holds, what)

    # ---- doing -----------------------------------------------------------------------------------

    async def answer(
        self, answer: interrupt_pb2.InterruptAnswer, *, node_id: str = "", answered_by: str = ""
    ) -> None:
        """Answer the oldest open question, once there is one: `await run.answer(proceed())`."""
        question = await self.question(node_id)
        await self._bench.client.answer(question.interrupt_id, answer, answered_by=answered_by)
        await self.refresh()

    async def signal(self, name: str, payload: object = None, *, correlation: str = "") -> None:
        """Send a signal."""
        await self._bench.client.signal(self.run_id, name, payload, correlation=correlation)

    async def cancel(self, reason: str = "") -> BenchRun:
        """Stop the run, and return once it is over."""
        await self.handle.cancel(reason)
        return await self.finished()

    async def refresh(self) -> None:
        """Look at the run as it is now."""
        news = self._bench.client.watch(self.run_id, len(self.history), history_only=True)
        events = [event async for event in news if isinstance(event, event_pb2.RunEvent)]
        # Sequences have no gaps; a task of the test may have looked meanwhile, too.
        new = [event for event in events if event.sequence > len(self.history)]
        self.history = History([*self.history, *new])

    # ---- looking ---------------------------------------------------------------------------------

    @property
    def run_id(self) -> str:
        """Its id."""
        return self.handle.run_id

    @property
    def status(self) -> str:
        """How it ended: "completed", "failed" or "cancelled"; "open" before."""
        return self.history.status

    @property
    def path(self) -> Path:
        """The nodes that ran, in order: `assert run.path == ["think", "act", "think", "answer"]`."""
        return self.history.path

    @property
    def tasks(self) -> Sequence[TaskSeen]:
        """The tasks, in the order in which they were scheduled."""
        return self.history.tasks

    def attempts(self, which: str) -> list[int]:
        """Return the attempts of each task of a node ("think"), or of a label ("tool search")."""
        found = [task.attempts for task in self.tasks if which in {task.node_id, task.label}]
        if not found:
            there = ", ".join(sorted({task.label for task in self.tasks})) or "none"
            message = f"{which!r} is neither a node nor the label of a task that there was; there are {there}"
            raise AssertionError(message)
        return found

    @property
    def questions(self) -> Sequence[interrupt_pb2.Interrupt]:
        """The questions that are open."""
        return self.history.questions

    @property
    def failure(self) -> failure_pb2.Failure | None:
        """Why it failed; None if it did not."""
        return self.history.failure

    @property
    def state(self) -> RunState:
        """The state at the end. Raises AssertionError: Nobody has waited for it."""
        if self._state is None:
            message = "the state is read at the end of the run: `await run.finished()` first"
            raise AssertionError(message)
        return self._state

    @property
    def variables(self) -> Mapping[str, object]:
        """The variables at the end, as Python has them."""
        return self.state.variables

    @property
    def messages(self) -> Sequence[conversation_pb2.Message]:
        """The conversation at the end."""
        return self.state.state.conversation.messages
