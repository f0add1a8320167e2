"""What can be done with runs: start, answer, cancel, read. The face of the engine.

Rules: whoever calls may go away at any time; what was handed over is carried out all the same, because the engine owns the
tasks that do it. A request id is looked up first and stored in the same append as what it did.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, TypeVar

from stepgraph.v1 import interrupt_pb2, run_pb2, run_service_pb2
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.inputs import Answer, Cancel, Pause, Signal, Unpause
from stepgraph_server.core.interrupts import current
from stepgraph_server.core.state import TaskStatus
from stepgraph_server.engine.creating import Creator, run_message
from stepgraph_server.engine.explaining import ConnectedExecutors, waits_of
from stepgraph_server.engine.forking import Forker
from stepgraph_server.engine.live import Delivery, FutureReply, LiveRun
from stepgraph_server.engine.repeats import Repeats, first_response
from stepgraph_server.engine.state_at import FoldedState
from stepgraph_server.engine.task_frames import task_input
from stepgraph_server.executors.port import split_task_id
from stepgraph_server.storage.errors import StorageError
from stepgraph_server.storage.records import RunKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

    from stepgraph.v1.run_service_pb2 import Wait
    from stepgraph_server.engine.callers import Caller, RequestKey
    from stepgraph_server.engine.clock import Clock
    from stepgraph_server.engine.graph_cache import GraphCache
    from stepgraph_server.engine.runner import Runner
    from stepgraph_server.executors.registry import Registry
    from stepgraph_server.storage.store import Store

_T = TypeVar("_T", bound="Message")


class Engine:
    """All runs of a server."""

    def __init__(  # noqa: PLR0913  # the composition root passes each dependency by name
        self,
        *,
        store: Store,
        graphs: GraphCache,
        runner: Runner,
        registry: Registry,
        clock: Clock,
        make_run_id: Callable[[], str],
        max_start_bytes: int,
    ) -> None:
        self._store = store
        self._runner = runner
        self._registry = registry
        self._repeats = Repeats(store.requests, clock)
        self._creator = Creator(
            store=store,
            graphs=graphs,
            runner=runner,
            repeats=self._repeats,
            clock=clock,
            make_run_id=make_run_id,
            max_start_bytes=max_start_bytes,
        )
        self._forker = Forker(
            folder=runner.folder,
            journal=store.journal,
            graphs=graphs,
            creator=self._creator,
            repeats=self._repeats,
            clock=clock,
        )

    # Requests

    async def start_run(
        self, namespace: str, request: run_service_pb2.StartRunRequest, caller: Caller
    ) -> run_pb2.Run:
        """Create a run, and return it once it is durable. A repeated request_id gives the first run."""
        return await self._creator.start(namespace, request, caller)

    async def fork_run(
        self,
        namespace: str,
        request: run_service_pb2.ForkRunRequest,
        caller: Caller,
        key: RequestKey | None,
    ) -> run_pb2.Run:
        """Create a run from the prefix of another, and return it once it is durable."""
        return await self._forker.fork(namespace, request, caller, key)

    async def retry_run(
        self,
        namespace: str,
        request: run_service_pb2.RetryRunRequest,
        caller: Caller,
        key: RequestKey | None,
    ) -> run_pb2.Run:
        """Create a run that starts just before the failure of another, and return it once it is durable."""
        return await self._forker.retry(namespace, request, caller, key)

    async def change_run(
        self,
        namespace: str,
        run_id: str,
        change: Cancel | Signal | Pause | Unpause,
        request: RequestKey | None,
    ) -> run_pb2.Run:
        """Stop a run, pause it, let it go on, or send it a signal; return it once that is durable."""
        before = await self._repeats.earlier(namespace, request, run_pb2.Run)
        if before is not None:
            return before
        key = RunKey(namespace, run_id)
        creation = (await self._runner.folder.record(key)).creation
        return await self._ask(
            key, change, request, lambda run: run_message(run, creation), run_pb2.Run
        )

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
        before = await self._repeats.earlier(namespace, request, interrupt_pb2.Interrupt)
        if before is not None:
            return before
        found = await self._store.interrupts.get(namespace, interrupt_id)
        if found is None:
            message = f"there is no interrupt {interrupt_id!r} in namespace {namespace!r}"
            raise Refused("INTERRUPT_NOT_FOUND", message, metadata={"interrupt_id": interrupt_id})
        happened = Answer(
            interrupt_id=interrupt_id,
            answer=answer,
            answered_by=answered_by,
            traceparent=traceparent,
        )
        return await self._ask(
            found[1],
            happened,
            request,
            lambda run: _question(run, interrupt_id),
            interrupt_pb2.Interrupt,
        )

    async def task_input(
        self, namespace: str, task_id: str, attempt: int, instance_token: bytes
    ) -> bytes:
        """Return the serialized TaskInput of an attempt that this instance holds."""
        run_id, local_id = split_task_id(task_id)
        try:
            run = await self._runner.settled(RunKey(namespace, run_id))
        except Refused as error:
            raise _no_attempt(task_id, attempt) from error
        state = run.state
        task = state.tasks.get(local_id) if state is not None else None
        instance = hashlib.sha256(instance_token).hexdigest()
        if (
            state is None
            or task is None
            or (task.status, task.attempt, task.instance)
            != (TaskStatus.ASSIGNED, attempt, instance)
        ):
            raise _no_attempt(task_id, attempt)
        return task_input(state, task)

    async def run_state(self, namespace: str, run_id: str, sequence: int) -> FoldedState:
        """Return the state of a run after an event; 0 means its last one."""
        key = RunKey(namespace, run_id)
        record = await self._runner.folder.record(key)
        head = record.progress.last_sequence
        if sequence > head:
            message = (
                f"run {run_id!r} has {head} events, so there is no state after event {sequence}"
            )
            metadata = {
                "run_id": run_id,
                "after_sequence": str(sequence),
                "last_sequence": str(head),
            }
            raise Refused("SEQUENCE_OUT_OF_RANGE", message, metadata=metadata)
        return FoldedState(await self._runner.folder.fold_until(key, record, sequence or head))

    async def explain_run(self, namespace: str, run_id: str) -> tuple[run_pb2.Run, list[Wait]]:
        """Return a run, and what it waits for."""
        key = RunKey(namespace, run_id)
        record = await self._runner.folder.record(key)
        if record.is_final:
            return record.to_run(), []
        run = await self._runner.settled(key)
        while run.state is None:
            # An append has failed since it was settled, and it is being read again.
            run = await self._runner.settled(key)
        waits = waits_of(run.state, ConnectedExecutors(self._registry, namespace))
        return run_message(run, record.creation), waits

    # Inside

    async def _ask(
        self,
        key: RunKey,
        happened: Answer | Cancel | Signal | Pause | Unpause,
        request: RequestKey | None,
        respond: Callable[[LiveRun], _T],
        kind: type[_T],
    ) -> _T:
        waiter: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        reply = FutureReply(waiter, respond)
        delivery = Delivery(
            happened=happened, reply=reply, record=self._repeats.recorder(request, reply)
        )
        self._runner.deliver(key, delivery)
        try:
            response = await waiter
        except StorageError as error:
            return first_response(error, request, kind)
        if request is not None and delivery.unrecorded:
            # It changed nothing, so there was no append to store the request with.
            return await self._repeats.keep(key.namespace, request, response, kind)
        return response


def _question(run: LiveRun, interrupt_id: str) -> interrupt_pb2.Interrupt:
    assert run.state is not None
    return current(run.state.questions[interrupt_id])


def _no_attempt(task_id: str, attempt: int) -> Refused:
    message = (
        f"attempt {attempt} of {task_id!r} is not current, or another executor has it; drop it"
    )
    return Refused(
        "TASK_NOT_FOUND", message, metadata={"task_id": task_id, "attempt": str(attempt)}
    )
