"""A server for executors on loopback: real gRPC, the real session, and a desk in the place of the engine."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from typing import TYPE_CHECKING, TypeVar

import grpc

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import task_pb2, value_pb2, value_service_pb2
from stepgraph_server.api.errors import status_of_refusal
from stepgraph_server.api.executor_stream import ExecutorStreams
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.instants import SECOND, Instant, Span
from stepgraph_server.executors.registry import Registry
from stepgraph_server.executors.seats import Wanted
from stepgraph_server.executors.session_events import Terms
from tests.support.session_pair import Assigned, Desk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
    from types import TracebackType
    from typing import Any, Self

    from stepgraph_server.executors.registry import Selector
    from stepgraph_server.executors.seats import LostInstance, Seat

    Context = grpc.aio.ServicerContext[Any, Any]


T = TypeVar("T")


class ExecutorServer:
    """Use it as an async context. One desk outlives every stream, and `restart`, too."""

    def __init__(self, terms: Terms | None = None) -> None:
        self.terms = terms or Terms()
        self.desk = Desk()
        self.port = 0
        self.recorded: dict[str, pb.AttemptOutcome] = {}
        self.progress_of: dict[tuple[str, int], list[task_pb2.TaskProgress]] = {}
        self.accepts: list[pb.AttemptRef] = []
        self.rejects: list[tuple[pb.AttemptRef, str, str]] = []
        self.lost_instances: list[LostInstance] = []
        self.stored: dict[str, tuple[value_pb2.StoredValue, bytes]] = {}
        self.inputs: dict[str, task_pb2.TaskInput] = {}
        self.reads: list[str] = []
        self.writes: list[str] = []
        self.calls: list[asyncio.Task[object]] = []
        self._ids = itertools.count(1)
        self._build()

    def _build(self) -> None:
        self.registry = Registry(self.terms.lost_grace, self.room)
        loop = asyncio.get_running_loop()
        self.streams = ExecutorStreams(
            registry=self.registry,
            work=self,
            terms=self.terms,
            now=lambda: Instant(round(loop.time() * SECOND)),
            new_session_id=lambda: f"s{next(self._ids)}",
        )
        self.grpc = grpc.aio.server(
            options=(
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", 8 * 1024 * 1024),
                ("grpc.http2.max_ping_strikes", 0),
            )
        )
        self.grpc.add_generic_rpc_handlers([self._executor_service(), self._value_service()])

    def _executor_service(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            "stepgraph.v1.ExecutorService",
            {
                "Connect": grpc.stream_stream_rpc_method_handler(self._connect),
                "ReadTaskInput": grpc.unary_stream_rpc_method_handler(
                    self._read_task_input,
                    pb.ReadTaskInputRequest.FromString,
                    pb.ReadTaskInputResponse.SerializeToString,
                ),
            },
        )

    def _value_service(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            "stepgraph.v1.ValueService",
            {
                "ReadValue": grpc.unary_stream_rpc_method_handler(
                    self._read_value,
                    value_service_pb2.ReadValueRequest.FromString,
                    value_service_pb2.ReadValueResponse.SerializeToString,
                ),
                "WriteValue": grpc.stream_unary_rpc_method_handler(
                    self._write_value,
                    value_service_pb2.WriteValueRequest.FromString,
                    value_service_pb2.WriteValueResponse.SerializeToString,
                ),
            },
        )

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.streams.__aenter__()
        self.port = self.grpc.add_insecure_port(f"127.0.0.1:{self.port}")
        await self.grpc.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.grpc.stop(0)
        await self.streams.__aexit__(None, None, None)

    async def restart(self, *, pause_s: float = 0.0) -> None:
        """Stop, and start again at the same port: every stream breaks, and nobody is known any more."""
        await self.__aexit__(None, None, None)
        await asyncio.sleep(pause_s)
        self._build()
        await self.__aenter__()

    # ---- what a test does ------------------------------------------------------------------------

    async def seat(self) -> Seat:
        """Return the one seat, once there is one that is open."""
        return await self.until(
            lambda: next((seat for seat in self.registry.seats() if seat.is_open), None)
        )

    async def until(self, found: Callable[[], T | None]) -> T:
        """Return what a function returns, once that is something."""
        async with asyncio.timeout(10):
            while not (result := found()):  # noqa: ASYNC110  # tests look; nothing here tells of changes
                await asyncio.sleep(0.002)
        return result

    async def send(
        self,
        *tasks: task_pb2.Task,
        key: tuple[str, ...] | None = None,
        selector: Selector = (),
    ) -> None:
        """Assign tasks to whoever can take them, or to the one executor there is."""
        for task in tasks:
            seat = (
                await self.seat()
                if key is None
                else await self.until(lambda: self.registry.reserve("default", key, selector))
            )
            assigned = self.desk.tasks.setdefault(task.task_id, Assigned())
            assigned.attempt += 1
            assigned.instance = seat.instance
            task.attempt = assigned.attempt
            seat.outlet.send_tasks([task.SerializeToString()])

    async def outcome(self, task_id: str) -> pb.AttemptOutcome:
        """Return the outcome of a task, once it is recorded."""
        await self.until(lambda: task_id in self.recorded)
        return self.recorded[task_id]

    async def call(self, task_input: task_pb2.TaskInput, task_id: str = "r/t") -> pb.AttemptOutcome:
        """Have one task done."""
        await self.send(task_pb2.Task(task_id=task_id, input=task_input))
        return await self.outcome(task_id)

    async def cancel(self, *task_ids: str, reason: str = "enough") -> None:
        """Ask to stop the current attempts of tasks."""
        refs = [
            pb.AttemptRef(task_id=task_id, attempt=self.desk.tasks[task_id].attempt)
            for task_id in task_ids
        ]
        (await self.seat()).outlet.send_cancels(refs, reason, Span(10 * SECOND))

    def store(self, content: bytes, form: value_pb2.ValueForm.ValueType) -> value_pb2.StoredValue:
        """Store a value."""
        stored = value_pb2.StoredValue(
            digest=f"sha256:{hashlib.sha256(content).hexdigest()}",
            size_bytes=len(content),
            form=form,
        )
        self.stored[stored.digest] = (stored, content)
        return stored

    # ---- the port Work ---------------------------------------------------------------------------

    async def joined(
        self, seat: Seat, held: Sequence[pb.AttemptRef], unacknowledged: Sequence[pb.AttemptRef]
    ) -> Wanted:
        """Want what is current."""
        wanted = self.desk.wanted(seat.instance, held)
        results = self.desk.wanted(seat.instance, unacknowledged)
        self.desk.lose(seat.instance, but=(*wanted, *results))
        return Wanted(attempts=wanted, results=results)

    def lost(self, lost: LostInstance) -> None:
        """Remember, and have its tasks done again."""
        self.lost_instances.append(lost)
        self.desk.lose(lost.instance)

    def accepted(self, seat: Seat, attempts: Sequence[pb.AttemptRef]) -> None:
        """Remember."""
        del seat
        self.accepts.extend(attempts)

    def outcomes(self, seat: Seat, outcomes: Sequence[pb.AttemptOutcome]) -> None:
        """Record and acknowledge."""
        acks = []
        for outcome in outcomes:
            verdict = self.desk.record(seat.instance, outcome)
            if verdict == pb.ACK_VERDICT_ACCEPTED:
                self.recorded[outcome.task_id] = outcome
            self.registry.release(seat)
            acks.append((outcome.task_id, outcome.attempt, verdict))
        seat.outlet.send_acks(acks)

    def progress(self, seat: Seat, items: Sequence[pb.AttemptProgress]) -> None:
        """Remember."""
        del seat
        for item in items:
            shown = self.progress_of.setdefault((item.task_id, item.attempt), [])
            shown.extend(item.progress)

    def rejected(self, seat: Seat, attempt: pb.AttemptRef, reason: str, message: str) -> None:
        """Remember."""
        del seat
        self.rejects.append((attempt, reason, message))

    def room(self, seat: Seat) -> None:
        """Nobody waits."""

    # ---- the services ----------------------------------------------------------------------------

    async def _connect(
        self, requests: AsyncIterator[bytes], context: Context
    ) -> AsyncGenerator[bytes, None]:
        task = asyncio.current_task()
        assert task is not None
        self.calls.append(task)
        try:
            async for data in self.streams.connect(requests, context):
                yield data
        except Refused as refused:
            status = status_of_refusal(refused)
            await context.abort(status.code, status.message, status.trailers)

    async def _read_task_input(
        self, request: pb.ReadTaskInputRequest, context: Context
    ) -> AsyncGenerator[pb.ReadTaskInputResponse, None]:
        task_input = self.inputs.get(request.attempt.task_id)
        if task_input is None:
            status = status_of_refusal(Refused("TASK_NOT_FOUND", "no such attempt"))
            await context.abort(status.code, status.message, status.trailers)
            return
        data = task_input.SerializeToString()
        for start in range(0, len(data), 1024 * 1024):
            yield pb.ReadTaskInputResponse(chunk=data[start : start + 1024 * 1024])

    async def _read_value(
        self, request: value_service_pb2.ReadValueRequest, context: Context
    ) -> AsyncGenerator[value_service_pb2.ReadValueResponse, None]:
        self.reads.append(request.digest)
        if request.digest not in self.stored:
            status = status_of_refusal(Refused("VALUE_NOT_FOUND", "no such value"))
            await context.abort(status.code, status.message, status.trailers)
            return
        stored, content = self.stored[request.digest]
        yield value_service_pb2.ReadValueResponse(
            value=stored, chunk=content[request.offset_bytes :]
        )

    async def _write_value(
        self,
        requests: AsyncIterator[value_service_pb2.WriteValueRequest],
        context: Context,
    ) -> value_service_pb2.WriteValueResponse:
        parts = [request async for request in requests]
        content = b"".join(part.chunk for part in parts[1:])
        if len(content) > self.terms.max_stored_value_bytes:
            refused = Refused("PAYLOAD_TOO_LARGE", f"{len(content)} bytes", metadata={"field": "x"})
            status = status_of_refusal(refused)
            await context.abort(status.code, status.message, status.trailers)
        stored = parts[0].header.value
        self.writes.append(stored.digest)
        self.stored[stored.digest] = (stored, content)
        return value_service_pb2.WriteValueResponse(value=stored)
