"""Seats: what the server knows of one session of an executor, and the way to speak to it.

Rules: only the registry changes a seat. Everything here is used on the thread of the event loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from stepgraph_server.core.inputs import Placement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepgraph.v1 import event_pb2, executor_service_pb2
    from stepgraph_server.core.instants import Instant, Span
    from stepgraph_server.executors.session_events import HelloReceived

#: The load of a seat that takes nothing now: it is full, draining, closed, or its stream is clogged.
NO_ROOM: Final = 2.0


class Outlet(Protocol):
    """The way to speak to an executor over its session.

    Nothing here blocks, waits or raises: what is said is queued, and goes out with everything else that is ready. After
    the session has ended, whatever is said is dropped; the executor's next hello tells what it missed.
    """

    def send_tasks(self, tasks: Sequence[bytes]) -> None:
        """Hand over attempts, each a serialized `Task`."""
        ...

    def send_cancels(
        self, attempts: Sequence[executor_service_pb2.AttemptRef], reason: str, grace: Span
    ) -> None:
        """Ask to stop attempts. Attempts that were handed over before arrive before this."""
        ...

    def send_acks(self, acks: Sequence[Ack]) -> None:
        """Say what became of results. Only once that is durable: the executor forgets them."""
        ...

    def reject(self, attempt: executor_service_pb2.AttemptRef, reason: str, message: str) -> None:
        """Say that something about an attempt can't be taken."""
        ...

    def drain(self, reason: str, grace: Span) -> None:
        """Say that no more tasks will come on this stream."""
        ...

    def close(self, reason: str, message: str, metadata: Mapping[str, str]) -> None:
        """End the session with a status. Idempotent: the first reason stands."""
        ...


#: Of one result: the full task id, the attempt, the verdict. A bare tuple, as in a decision of the core: one per task.
Ack = tuple[str, int, "executor_service_pb2.AckVerdict.ValueType"]


class Seat:
    """One session's place in the registry. Read it; only the registry writes.

    A session has its own slots: when it ends they are gone, and releasing one of them later is harmless. So whoever
    reserves keeps the seat, and releases at that seat.
    """

    __slots__ = (
        "abilities",
        "client_name",
        "connect_time",
        "draining",
        "in_flight",
        "is_open",
        "labels",
        "load",
        "max_in_flight",
        "namespace",
        "outlet",
        "paused",
        "placement",
    )

    def __init__(self, hello: HelloReceived, outlet: Outlet, now: Instant) -> None:
        self.namespace: Final = hello.namespace
        #: Executor id and instance, as the core knows them.
        self.placement: Final = Placement(executor_id=hello.executor_id, instance=hello.instance)
        self.labels: Final = hello.labels
        self.client_name: Final = hello.client_name
        self.connect_time: Final = now
        self.outlet: Final = outlet
        self.abilities = hello.abilities
        self.max_in_flight = hello.max_in_flight
        self.in_flight = 0
        #: It was welcomed and its stream lives.
        self.is_open = False
        #: Its stream is clogged.
        self.paused = False
        #: It was told that no more will come.
        self.draining = False
        #: The share of its room that is taken, below 1; NO_ROOM if it takes nothing now.
        self.load = NO_ROOM

    @property
    def executor_id(self) -> str:
        """The executor's id."""
        return self.placement.executor_id

    @property
    def instance(self) -> str:
        """SHA-256 of the instance token, in hexadecimal."""
        return self.placement.instance

    def bears(self, selector: tuple[tuple[str, str], ...]) -> bool:
        """Whether each pair of the selector is among the labels."""
        labels = self.labels
        return all(labels.get(name) == value for name, value in selector)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostInstance:
    """A process of an executor that will not report any more; its attempts are lost, with this reason."""

    namespace: str
    executor_id: str
    instance: str
    reason: event_pb2.TaskLossReason.ValueType
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is still wanted of what an executor lists when it connects."""

    attempts: Sequence[executor_service_pb2.AttemptRef] = ()
    results: Sequence[executor_service_pb2.AttemptRef] = ()
