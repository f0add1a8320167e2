"""A run in memory, and what is under way with it.

Rules: the state may be ahead of the journal by the appends that are pending; nothing that follows from these is done
before they are durable. If one fails, the state is worthless and is folded again from the journal.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from stepgraph.v1 import executor_service_pb2
    from stepgraph_server.core.inputs import Command, Input
    from stepgraph_server.core.instants import Instant
    from stepgraph_server.core.state import RunState
    from stepgraph_server.storage.records import RequestRecord, RunCreation, RunKey


T = TypeVar("T")


class Reply(Protocol):
    """Whoever waits for what becomes of an input. Exactly one of the two is called, once, when it is durable."""

    def done(self, run: LiveRun) -> None:
        """It was decided, and what was decided is durable."""
        ...

    def failed(self, error: Exception) -> None:
        """It was refused, or could not be made durable."""
        ...


class FutureReply(Generic[T]):
    """A reply that a coroutine waits for. Whoever waits may go away; what was decided stands."""

    __slots__ = ("_make", "_waiter")

    def __init__(self, waiter: asyncio.Future[T], make: Callable[[LiveRun], T]) -> None:
        self._waiter = waiter
        self._make = make

    def done(self, run: LiveRun) -> None:
        """Give the waiter what was made of the run."""
        if not self._waiter.done():
            self._waiter.set_result(self._make(run))

    def failed(self, error: Exception) -> None:
        """Give the waiter the error."""
        if not self._waiter.done():
            self._waiter.set_exception(error)


@dataclass(slots=True, kw_only=True)
class Delivery:
    """An input on its way to a run."""

    happened: Input
    reply: Reply | None = None
    #: Makes the record of the request that is stored with the append; called after the decision.
    record: Callable[[LiveRun], RequestRecord] | None = None
    creation: RunCreation | None = None
    #: Transient: it changed nothing, so its request was not stored.
    unrecorded: bool = False
    #: It must not get lost if the journal fails for a while: nobody would say it again.
    keep: bool = False


@dataclass(slots=True, kw_only=True)
class Pending:
    """What is to be done once an append is durable."""

    run: LiveRun
    delivery: Delivery
    commands: list[Command]
    acks: list[tuple[str, int, executor_service_pb2.AckVerdict.ValueType]]
    #: The run is final after it.
    final: bool
    #: Deliveries that changed nothing, but whose answers stand on this append.
    after: list[
        tuple[Delivery, list[tuple[str, int, executor_service_pb2.AckVerdict.ValueType]]]
    ] = field(default_factory=list)


@dataclass(slots=True, kw_only=True, eq=False)
class LiveRun:
    """A run in memory. Without a state it is being loaded, and what happens to it waits."""

    key: RunKey
    state: RunState | None = None
    inbox: deque[Delivery] = field(default_factory=deque)
    pending: deque[Pending] = field(default_factory=deque)
    #: When the timers look at it next; None if they don't.
    armed: Instant | None = None
    #: The state is worthless: an append failed, and the run is folded again once all pending ones have been reported.
    broken: bool = False
    world: object = None
