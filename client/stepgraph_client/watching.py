"""Watching: streams that survive a lost connection, a restarted server and a newer one.

Rules: what is yielded has no gap and no duplicate. A cursor (a sequence, or a resume token) moves only when everything
before it was handed out; a stream that is lost is opened again from the cursor. Variants that this version does not
know are skipped, and the cursor still moves over them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

import grpc

from stepgraph.v1.event_pb2 import RunEvent, TransientEvent
from stepgraph_client.calls import WATCH_PATIENCE, Patience
from stepgraph_client.errors import StepgraphError, read_status

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence

    from stepgraph.v1.run_service_pb2 import WatchBatch
    from stepgraph_client.calls import Caller
    from stepgraph_client.errors import Status

#: Something that happened in a run: a fact of it, or something shown while it happens.
Event: TypeAlias = RunEvent | TransientEvent

#: Is told of each failure to keep up a stream, and how many there were in a row, before it is tried again.
OnLost: TypeAlias = "Callable[[Status, int], None]"

#: After this much silence a stream is opened again. The server sends keep-alives far more often, so silence means a
#: connection that died without a word.
SILENCE_S = 60.0
#: How often a hole in the sequences is asked for again before the server is called broken.
MAX_GAPS = 3

Item_co = TypeVar("Item_co", covariant=True)
Response = TypeVar("Response")
Response_co = TypeVar("Response_co", covariant=True)
Fed_contra = TypeVar("Fed_contra", contravariant=True)


class StreamBroken(StepgraphError):
    """The server left out events, and did so again when asked. Unexpected: a fault of the server's."""

    def __init__(self, run_id: str, expected: int, found: int) -> None:
        super().__init__(
            f"the server sent event {found} of run {run_id} where {expected} was due, {MAX_GAPS} times. "
            "This is a fault of the server's; report it with the run's id."
        )
        self.run_id = run_id
        self.expected = expected
        self.found = found


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNews:
    """An event of one of several watched runs.

    `resume_token` is where to go on: everything before it was handed out, and of the newest response some may come again.
    """

    run_id: str
    event: Event
    resume_token: str


class Cursor(Protocol[Fed_contra, Item_co]):
    """Where a watch stands. `take` yields what is new in a response and moves on as it does."""

    def take(self, response: Fed_contra) -> Iterator[Item_co]:
        """Yield what is new, in order.

        Raises:
            Gap: something is missing; the stream is to be opened again from the cursor.
        """
        ...

    @property
    def finished(self) -> bool:
        """Whether nothing more can come."""
        ...


class Stream(Protocol[Response_co]):
    """An open stream of responses, as gRPC gives it."""

    def __aiter__(self) -> AsyncIterator[Response_co]:
        """Return its responses. When they end without an exception, the server ended the stream well."""
        ...

    def cancel(self) -> bool:
        """Give it up."""
        ...


class BatchResponse(Protocol):
    """What the responses of all watches have."""

    @property
    def batches(self) -> Sequence[WatchBatch]:
        """What is new."""
        ...


class TokenResponse(BatchResponse, Protocol):
    """What the responses of a watch over several runs have."""

    @property
    def resume_token(self) -> str:
        """Where to resume."""
        ...


class Gap(Exception):
    """An event is missing in a stream."""

    def __init__(self, run_id: str, expected: int, found: int) -> None:
        super().__init__(f"{run_id}: expected {expected}, found {found}")
        self.run_id = run_id
        self.expected = expected
        self.found = found


class SequenceCursor:
    """The cursor of one run: the sequence of the last event that was handed out."""

    def __init__(self, run_id: str, after_sequence: int) -> None:
        self._run_id = run_id
        self.after_sequence = after_sequence
        self._finished = False

    @property
    def finished(self) -> bool:
        """Whether the terminal event was handed out."""
        return self._finished

    def take(self, response: BatchResponse) -> Iterator[Event]:
        """Yield what is new of the run."""
        for batch in response.batches:
            for event in batch.events:
                if event.sequence <= self.after_sequence:
                    continue
                if event.sequence != self.after_sequence + 1:
                    raise Gap(self._run_id, self.after_sequence + 1, event.sequence)
                self.after_sequence = event.sequence
                if is_final(event):
                    self._finished = True
                if event.WhichOneof("kind") is not None:
                    yield event
            yield from (
                each for each in batch.transient_events if each.WhichOneof("kind") is not None
            )


class TokenCursor:
    """The cursor of a watch over several runs: the server's token, and each run's last sequence."""

    def __init__(self, resume_token: str) -> None:
        self.resume_token = resume_token
        self._last: dict[str, int] = {}

    @property
    def finished(self) -> bool:
        """Never: the server ends such a stream, or the caller does."""
        return False

    def take(self, response: TokenResponse) -> Iterator[RunNews]:
        """Yield what is new of all runs."""
        for batch in response.batches:
            for event in batch.events:
                if event.sequence <= self._last.get(batch.run_id, 0):
                    continue
                # A run that is over sends nothing more: forget it, or a watch of months would remember them all.
                if is_final(event):
                    self._last.pop(batch.run_id, None)
                else:
                    self._last[batch.run_id] = event.sequence
                if event.WhichOneof("kind") is not None:
                    yield self._news(batch.run_id, event)
            for transient in batch.transient_events:
                if transient.WhichOneof("kind") is not None:
                    yield self._news(batch.run_id, transient)
        self.resume_token = response.resume_token or self.resume_token

    def _news(self, run_id: str, event: Event) -> RunNews:
        return RunNews(run_id=run_id, event=event, resume_token=self.resume_token)


class Follower(Generic[Response, Item_co]):
    """Follows one stream over as many connections as it takes."""

    def __init__(
        self,
        caller: Caller,
        cursor: Cursor[Response, Item_co],
        open_stream: Callable[[], Stream[Response]],
        *,
        patience: Patience = WATCH_PATIENCE,
        silence_s: float = SILENCE_S,
        on_lost: OnLost | None = None,
    ) -> None:
        self._caller = caller
        self._cursor = cursor
        self._open = open_stream
        self._patience = patience
        self._silence_s = silence_s
        self._on_lost = on_lost
        self._failures = 0
        self._gaps = 0

    async def items(self) -> AsyncGenerator[Item_co, None]:
        """Yield everything until the end.

        Raises:
            Refused: the server won't let this be watched, or can't read the run any further.
            Unreachable: the server stayed away longer than the patience lasts.
            StreamBroken: the server leaves out events.
        """
        while True:
            try:
                async for item in self._connection():
                    yield item
            except grpc.aio.AioRpcError as error:
                status = read_status(error)
                self._failures += 1
                if not status.retryable or self._failures >= self._patience.max_tries:
                    raise self._caller.failure(status, self._failures) from error
                if self._on_lost is not None:
                    self._on_lost(status, self._failures)
                await self._caller.pause(self._patience, self._failures, status)
            except TimeoutError:
                # Silence says nothing about the server's health; a quiet run may be just that.
                continue
            except Gap as gap:
                self._gaps += 1
                if self._gaps >= MAX_GAPS:
                    raise StreamBroken(gap.run_id, gap.expected, gap.found) from gap
            else:
                return

    async def _connection(self) -> AsyncIterator[Item_co]:
        """Yield what one connection brings, until the server ends it or it is lost."""
        call = self._open()
        responses = aiter(call)
        try:
            while True:
                async with asyncio.timeout(self._silence_s):
                    response = await anext(responses, None)
                if response is None:
                    return
                self._failures = 0
                for item in self._cursor.take(response):
                    self._gaps = 0
                    yield item
                if self._cursor.finished:
                    return
        finally:
            call.cancel()


_FINAL = frozenset({"run_completed", "run_failed", "run_cancelled"})


def is_final(event: Event) -> bool:
    """Say whether an event is a run's last one."""
    return isinstance(event, RunEvent) and event.WhichOneof("kind") in _FINAL
