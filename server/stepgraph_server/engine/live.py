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

    from stepgraph_server.core.errors import Refused
    from stepgraph_server.core.inputs import Decision, Input, World
    from stepgraph_server.core.state import RunState
    from stepgraph_server.storage.errors import StorageError
    from stepgraph_server.storage.records import Prefix, RequestRecord, RunCreation, RunKey
    from stepgraph_server.telemetry.trace_ids import RunTrace


T = TypeVar("T")


class Reply(Protocol):
    """Whoever waits for what becomes of an input. `done` or `failed` is called once."""

    def decided(self, run: LiveRun) -> None:
        """It was decided just now: make what `done` gives, because the run may be further by then. Say nothing yet."""
        ...

    def done(self) -> None:
        """What was decided is durable."""
        ...

    def failed(self, error: Exception) -> None:
        """It was refused, or could not be made durable."""
        ...


class FutureReply(Generic[T]):
    """A reply that a coroutine waits for. Whoever waits may go away; what was decided stands."""

    __slots__ = ("_made", "_make", "_waiter")

    def __init__(self, waiter: asyncio.Future[T], make: Callable[[LiveRun], T]) -> None:
        self._waiter = waiter
        self._make = make
        self._made: T | None = None

    @property
    def made(self) -> T:
        """What was made when it was decided."""
        assert self._made is not None, "it is not decided yet"
        return self._made

    def decided(self, run: LiveRun) -> None:
        """Make what the waiter will get."""
        self._made = self._make(run)

    def done(self) -> None:
        """Give the waiter what was made of the run."""
        if not self._waiter.done():
            self._waiter.set_result(self.made)

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
    record: Callable[[], RequestRecord] | None = None
    creation: RunCreation | None = None
    #: What its run begins with of another.
    prefix: Prefix | None = None
    #: Transient: it changed nothing, so its request was not stored.
    unrecorded: bool = False
    #: It must not get lost if the journal fails for a while: nobody would say it again.
    keep: bool = False
    #: Transient: what it was refused with, until that may be said.
    refusal: Refused | None = None


@dataclass(slots=True, kw_only=True)
class Pending:
    """What is to be done once an append is durable."""

    run: LiveRun
    delivery: Delivery
    decision: Decision
    #: The run is final after it.
    final: bool
    #: Deliveries that changed nothing, but whose answers stand on this append. None has sent anything.
    after: list[tuple[Delivery, Decision]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True, eq=False)
class LiveRun:
    """A run in memory. Without a state it is being loaded, and what happens to it waits."""

    key: RunKey
    state: RunState | None = None
    inbox: deque[Delivery] = field(default_factory=deque)
    pending: deque[Pending] = field(default_factory=deque)
    #: Why the state is worthless: an append failed. The run is folded again once all pending ones have been reported.
    failure: StorageError | None = None
    #: Appends and loads that have failed since the last append that did not.
    failures: int = 0
    #: Attempts that executors have accepted, while it is folded again; no journal says that. None: it was not in memory before.
    accepted: set[tuple[str, int]] | None = None
    #: It is quarantined: nothing acts on it any more.
    abandoned: bool = False
    world: World | None = None
    #: The trace that its spans stand in; it follows from the state, so it goes when the state does.
    trace: RunTrace | None = None

    @property
    def log_fields(self) -> dict[str, str]:
        """What a log record says of the run. Its trace is known once something of it was decided here."""
        trace_id = self.trace.trace_id if self.trace is not None else ""
        return {
            "namespace": self.key.namespace,
            "run_id": self.key.run_id,
            "trace_id": trace_id,
        }
