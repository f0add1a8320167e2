"""What the API wants of the rest of the server: ports that the engine and the watch hub implement.

Rules: the API never reaches around these. Everything that changes a run goes through the engine, which owns the tasks that do
it: a caller that goes away takes nothing with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

    import grpc.aio

    from stepgraph.v1 import (
        conversation_pb2,
        executor_service_pb2,
        interrupt_pb2,
        run_pb2,
        run_service_pb2,
        state_pb2,
        value_pb2,
    )
    from stepgraph_server.core.inputs import Cancel, Pause, Signal, Unpause
    from stepgraph_server.core.instants import Span
    from stepgraph_server.engine.callers import Caller, RequestKey
    from stepgraph_server.storage.runs import RunQuery

    # grpc types a context by request and response, and neither matters to what we do with one.
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class StateAt(Protocol):
    """The state of a run after one of its events. Nothing of it changes any more."""

    @property
    def sequence(self) -> int:
        """The event that it is the state after."""
        ...

    @property
    def messages(self) -> Sequence[conversation_pb2.Message]:
        """The messages of the conversation, in order."""
        ...

    @property
    def variables(self) -> Mapping[str, value_pb2.Value]:
        """The variables."""
        ...

    def rest(self) -> state_pb2.GraphState:
        """Return a new message with all of the state but its messages and variables."""
        ...

    def activations(self) -> Sequence[run_service_pb2.ActivationState]:
        """Return the live activations."""
        ...

    def result(self) -> state_pb2.GraphExecutionResult | None:
        """Return how the run ended, without final_state; None if it had not."""
        ...


class Outlet(Protocol):
    """The way to one executor that is connected."""

    def drain(self, reason: str, grace: Span) -> None:
        """Say that no more tasks will come."""
        ...

    def close(self, reason: str, message: str, metadata: Mapping[str, str]) -> None:
        """End the session with a status."""
        ...


class SeatAtWork(Protocol):
    """An executor that is connected."""

    @property
    def outlet(self) -> Outlet:
        """The way to it."""
        ...


class Executors(Protocol):
    """Who is connected."""

    def executors(self, namespace: str) -> Sequence[executor_service_pb2.Executor]:
        """Return the executors that are connected, or within their grace, by id."""
        ...

    def seats(self) -> Sequence[SeatAtWork]:
        """Return those of all namespaces that are connected."""
        ...


class Sessions(Protocol):
    """Serves the sessions of executors."""

    def connect(
        self, requests: AsyncIterator[bytes], context: object
    ) -> AsyncGenerator[bytes, None]:
        """Serve one session, from serialized frames to serialized frames.

        It ends when the generator does; what it raises becomes the status.
        """
        ...


class Engine(Protocol):
    """Makes runs happen. Every method raises Refused for what can't be done, and is safe to be cancelled."""

    async def start_run(
        self,
        namespace: str,
        request: run_service_pb2.StartRunRequest,
        caller: Caller,
    ) -> run_pb2.Run:
        """Create a run, and return it once it is durable. A repeated request_id gives the first run.

        The request was checked by shape; graph references, an inline definition and values were not looked at.
        """
        ...

    async def fork_run(
        self,
        namespace: str,
        request: run_service_pb2.ForkRunRequest,
        caller: Caller,
        key: RequestKey | None,
    ) -> run_pb2.Run:
        """Create a run from the prefix of another, and return it once it is durable."""
        ...

    async def retry_run(
        self,
        namespace: str,
        request: run_service_pb2.RetryRunRequest,
        caller: Caller,
        key: RequestKey | None,
    ) -> run_pb2.Run:
        """Create a run that starts just before the failure of another, and return it once it is durable."""
        ...

    async def change_run(
        self,
        namespace: str,
        run_id: str,
        change: Cancel | Signal | Pause | Unpause,
        request: RequestKey | None,
    ) -> run_pb2.Run:
        """Stop a run, pause it, let it go on, or send it a signal; return it once that is durable."""
        ...

    async def answer(
        self,
        namespace: str,
        interrupt_id: str,
        answer: interrupt_pb2.InterruptAnswer,
        answered_by: str,
        request: RequestKey | None,
        *,
        traceparent: str = "",
    ) -> interrupt_pb2.Interrupt:
        """Answer a question, and return it once the answer is durable."""
        ...

    async def task_input(
        self, namespace: str, task_id: str, attempt: int, instance_token: bytes
    ) -> bytes:
        """Return the serialized TaskInput of an attempt that this instance holds; else TASK_NOT_FOUND."""
        ...

    async def explain_run(
        self, namespace: str, run_id: str
    ) -> tuple[run_pb2.Run, list[run_service_pb2.Wait]]:
        """Return a run, and what it waits for."""
        ...

    async def run_state(self, namespace: str, run_id: str, sequence: int) -> StateAt:
        """Return the state of a run after an event; 0 means its last one."""
        ...


class Watcher(Protocol):
    """Feeds watches. Each item holds serialized WatchBatches, all that is ready; none of them is a keep-alive."""

    def watch_run(
        self,
        namespace: str,
        run_id: str,
        after_sequence: int,
        *,
        summary: bool,
        history_only: bool,
    ) -> AsyncGenerator[Sequence[bytes], None]:
        """Yield all that happens in a run after a sequence, until its terminal event.

        Raises:
            Refused: There is no such run, or the sequence is beyond its end.
            Quarantined: After all that could be read.
        """
        ...

    def watch_tree(
        self,
        namespace: str,
        run_id: str,
        after_position: int | None,
        *,
        summary: bool,
        history_only: bool,
    ) -> AsyncGenerator[tuple[Sequence[bytes], int], None]:
        """Yield all that happens in a root and in the runs below it, with the position to resume at, until its terminal event.

        After a position or from the beginning. Raises as `watch_run` does, and for a run that is no root.
        """
        ...

    def watch_runs(
        self, namespace: str, query: RunQuery, after_position: int | None, *, summary: bool
    ) -> AsyncGenerator[tuple[Sequence[bytes], int], None]:
        """Yield all that happens in the runs that match, after a position or from now, with the position to resume at."""
        ...
