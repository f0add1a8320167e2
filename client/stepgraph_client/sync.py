"""The client for programs without asyncio: the same names, and each call returns when it is done.

    from stepgraph_client.sync import Client

    with Client("127.0.0.1:7233") as client:
        print(client.start_run("react", input="What is the weather?").result())

Rules: nothing is done here; every method runs its async twin on one event loop in a thread of its own. A client may be
used by several threads. Async iterators become plain ones, which fetch as they are read.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from stepgraph.v1.interrupt_pb2 import InterruptStatus
from stepgraph.v1.run_service_pb2 import WatchView
from stepgraph_client.calls import WATCH_PATIENCE
from stepgraph_client.client import Client as AsyncClient
from stepgraph_client.connection import DEFAULT_SERVER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator

    import grpc

    from stepgraph.v1.executor_service_pb2 import Executor
    from stepgraph.v1.graph_pb2 import StateGraph
    from stepgraph.v1.graph_service_pb2 import (
        GetGraphResponse,
        RegisterGraphResponse,
        ValidateGraphResponse,
    )
    from stepgraph.v1.interrupt_pb2 import Interrupt, InterruptAnswer
    from stepgraph.v1.run_pb2 import GraphVersion, Run
    from stepgraph.v1.run_service_pb2 import ExplainRunResponse
    from stepgraph.v1.value_pb2 import Value
    from stepgraph_client.calls import Patience
    from stepgraph_client.graphs import Graph, GraphSource
    from stepgraph_client.requests import ForkOptions, RunFilterOptions, RunOptions
    from stepgraph_client.run_calls import RunHandle as AsyncRunHandle
    from stepgraph_client.run_calls import RunState
    from stepgraph_client.watching import Event, OnLost, RunNews

T = TypeVar("T")


class _Loop:
    """An event loop in a thread. The thread is a daemon: a script that forgets to close still ends."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="stepgraph-client", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run something on the loop and wait for it. Ctrl-C stops it there as well."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # An exception of the work itself leaves nothing to cancel; one of this thread does.
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield what an async iterator gives."""
        try:
            while (found := self.run(_next(items))) is not None:
                yield found[0]
        finally:
            self.run(_close(items))

    def stop(self) -> None:
        """End the loop and its thread."""
        self.run(_settle())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _next(items: AsyncIterator[T]) -> tuple[T] | None:
    """Return the next item in a tuple, because an item may be anything; None at the end."""
    async for item in items:
        return (item,)
    return None


async def _close(items: AsyncIterator[T]) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()


async def _settle() -> None:
    await asyncio.get_running_loop().shutdown_asyncgens()


class RunHandle:
    """A run that one holds on to. `run` is its row as it was last read."""

    def __init__(self, loop: _Loop, handle: AsyncRunHandle) -> None:
        self._loop = loop
        self._handle = handle

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._handle.run_id

    @property
    def run(self) -> Run:
        """The run's row as it was last read."""
        return self._handle.run

    def events(self, after_sequence: int = 0) -> Iterator[Event]:
        """Yield what happened and happens, until the run is over."""
        return self._loop.iterate(self._handle.events(after_sequence))

    def wait(self) -> Run:
        """Wait until the run is over, however it ends, and return its row."""
        return self._loop.run(self._handle.wait())

    def result(self) -> object:
        """Wait until the run is over, and return its output.

        Raises:
            RunFailed: it FAILED.
            RunCancelled: it was CANCELLED, or a person said no.
        """
        return self._loop.run(self._handle.result())

    def state(self, sequence: int = 0) -> RunState:
        """Read the state."""
        return self._loop.run(self._handle.state(sequence))

    def cancel(self, reason: str = "") -> Run:
        """Stop the run."""
        return self._loop.run(self._handle.cancel(reason))


class Client:
    """A client of one server and namespace; see `stepgraph_client.Client` for what each method does and raises."""

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        *,
        namespace: str = "default",
        credentials: grpc.ChannelCredentials | None = None,
        patience: Patience | None = None,
        watch_patience: Patience = WATCH_PATIENCE,
    ) -> None:
        self._loop = _Loop()
        self._client = AsyncClient(
            server,
            namespace=namespace,
            credentials=credentials,
            patience=patience,
            watch_patience=watch_patience,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection and the thread. Runs go on."""
        self._loop.run(self._client.close())
        self._loop.stop()

    def start_run(self, graph: GraphSource, **options: Unpack[RunOptions]) -> RunHandle:
        """Start a run; when this returns, the run is durable."""
        return self._handle(self._loop.run(self._client.start_run(graph, **options)))

    def run(self, run_id: str) -> RunHandle:
        """Return a handle for a run that exists."""
        return self._handle(self._loop.run(self._client.run(run_id)))

    def get_run(self, run_id: str) -> Run:
        """Read a run's row."""
        return self._loop.run(self._client.get_run(run_id))

    def list_runs(self, **which: Unpack[RunFilterOptions]) -> Iterator[Run]:
        """Yield runs, newest first."""
        return self._loop.iterate(self._client.list_runs(**which))

    def state(self, run_id: str, sequence: int = 0) -> RunState:
        """Read the state of a run after an event; 0 means the last one."""
        return self._loop.run(self._client.state(run_id, sequence))

    def explain(self, run_id: str) -> ExplainRunResponse:
        """Say what a run waits for."""
        return self._loop.run(self._client.explain(run_id))

    def watch(
        self,
        run_id: str,
        after_sequence: int = 0,
        *,
        view: WatchView.ValueType = WatchView.WATCH_VIEW_FULL,
        history_only: bool = False,
        on_lost: OnLost | None = None,
    ) -> Iterator[Event]:
        """Yield all events of a run after a sequence, then what happens, until the run is over.

        `on_lost` is called on the thread of the event loop; it must not wait.
        """
        return self._loop.iterate(
            self._client.watch(
                run_id, after_sequence, view=view, history_only=history_only, on_lost=on_lost
            )
        )

    def watch_tree(
        self,
        run_id: str,
        *,
        resume_token: str = "",
        view: WatchView.ValueType = WatchView.WATCH_VIEW_FULL,
    ) -> Iterator[RunNews]:
        """Yield the events of a run and of its child runs."""
        return self._loop.iterate(
            self._client.watch_tree(run_id, resume_token=resume_token, view=view)
        )

    def watch_runs(
        self,
        *,
        resume_token: str = "",
        view: WatchView.ValueType = WatchView.WATCH_VIEW_FULL,
        **which: Unpack[RunFilterOptions],
    ) -> Iterator[RunNews]:
        """Yield what happens in all runs that match, for as long as you like."""
        return self._loop.iterate(
            self._client.watch_runs(resume_token=resume_token, view=view, **which)
        )

    def watch_position(self, **which: Unpack[RunFilterOptions]) -> str:
        """Return where a watch of these runs begins if it begins now."""
        return self._loop.run(self._client.watch_position(**which))

    def cancel(self, run_id: str, reason: str = "") -> Run:
        """Stop a run."""
        return self._loop.run(self._client.cancel(run_id, reason))

    def pause(self, run_id: str, reason: str = "") -> Run:
        """Keep anything new of a run from starting."""
        return self._loop.run(self._client.pause(run_id, reason))

    def unpause(self, run_id: str) -> Run:
        """Let a paused run go on."""
        return self._loop.run(self._client.unpause(run_id))

    def signal(
        self, run_id: str, name: str, payload: object = None, *, correlation: str = ""
    ) -> Run:
        """Send a signal to a run's tree."""
        return self._loop.run(self._client.signal(run_id, name, payload, correlation=correlation))

    def fork(self, run_id: str, **options: Unpack[ForkOptions]) -> RunHandle:
        """Make a new run from a run's prefix, on request with changes."""
        return self._handle(self._loop.run(self._client.fork(run_id, **options)))

    def retry(self, run_id: str, new_run_id: str = "") -> RunHandle:
        """Make a new run that starts just before a FAILED run's failure."""
        return self._handle(self._loop.run(self._client.retry(run_id, new_run_id)))

    def delete(self, run_id: str) -> None:
        """Delete a run that is over, with its child runs."""
        self._loop.run(self._client.delete(run_id))

    def register_graph(self, graph: StateGraph | Graph) -> RegisterGraphResponse:
        """Store a graph under its name."""
        return self._loop.run(self._client.register_graph(graph))

    def validate_graph(self, graph: StateGraph | Graph) -> ValidateGraphResponse:
        """List all problems of a graph, and what is legal but odd."""
        return self._loop.run(self._client.validate_graph(graph))

    def get_graph(self, graph: str) -> GetGraphResponse:
        """Read one version of a graph."""
        return self._loop.run(self._client.get_graph(graph))

    def render_graph(self, graph: str = "", *, run_id: str = "") -> str:
        """Draw a graph in the language of Mermaid."""
        return self._loop.run(self._client.render_graph(graph, run_id=run_id))

    def list_graphs(self) -> Iterator[GraphVersion]:
        """Yield the latest version of each graph, by name."""
        return self._loop.iterate(self._client.list_graphs())

    def list_graph_versions(self, name: str) -> Iterator[GraphVersion]:
        """Yield the versions of a graph, newest first."""
        return self._loop.iterate(self._client.list_graph_versions(name))

    def interrupts(
        self,
        run_id: str = "",
        *,
        include_descendants: bool = False,
        status: InterruptStatus.ValueType = InterruptStatus.INTERRUPT_STATUS_OPEN,
    ) -> Iterator[Interrupt]:
        """Yield questions over all runs, or of one, oldest first."""
        return self._loop.iterate(
            self._client.interrupts(run_id, include_descendants=include_descendants, status=status)
        )

    def get_interrupt(self, interrupt_id: str) -> Interrupt:
        """Read a question, open or not."""
        return self._loop.run(self._client.get_interrupt(interrupt_id))

    def answer(
        self, interrupt_id: str, answer: InterruptAnswer, *, answered_by: str = ""
    ) -> Interrupt:
        """Answer a question."""
        return self._loop.run(self._client.answer(interrupt_id, answer, answered_by=answered_by))

    def answer_external(
        self, token: str, answer: InterruptAnswer, *, answered_by: str = ""
    ) -> Interrupt:
        """Answer the question that waits for an external token."""
        return self._loop.run(self._client.answer_external(token, answer, answered_by=answered_by))

    def executors(self) -> Iterator[Executor]:
        """Yield the executors that are connected, or were within their grace."""
        return self._loop.iterate(self._client.executors())

    def as_value(self, given: object) -> Value:
        """Return something as a Value; what is too large to be sent inline is stored first."""
        return self._loop.run(self._client.as_value(given))

    def put_value(self, given: object) -> Value:
        """Store something, and return the reference to it."""
        return self._loop.run(self._client.put_value(given))

    def get_value(self, value: Value) -> object:
        """Return a value as Python has it; what is stored is read first."""
        return self._loop.run(self._client.get_value(value))

    def read_value(self, digest: str) -> bytes:
        """Return the bytes of a stored value."""
        return self._loop.run(self._client.read_value(digest))

    def _handle(self, handle: AsyncRunHandle) -> RunHandle:
        return RunHandle(self._loop, handle)
