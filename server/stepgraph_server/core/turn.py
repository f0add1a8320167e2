"""One decision in the making.

Rules: `emit` is the only way in which a decision changes a state: it builds the event, applies it and keeps it. So the
state at hand is always what the stored events and the new ones add up to. If the events can't be made durable, the
caller drops the state and folds the journal again; nothing else was changed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2
from stepgraph_server.core.instants import to_timestamp
from stepgraph_server.core.work import Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

    from stepgraph.v1 import executor_service_pb2
    from stepgraph_server.core.inputs import Command, RunLimits, World
    from stepgraph_server.core.instants import Instant
    from stepgraph_server.core.state import Activation, RunState


class Turn:
    """The state, the world and the time of one decision, and what it has decided so far."""

    __slots__ = (
        "_evolve",
        "_time",
        "acks",
        "agenda",
        "bytes",
        "command",
        "commands",
        "events",
        "now",
        "state",
        "supersteps",
        "work",
        "world",
    )

    def __init__(
        self,
        state: RunState,
        world: World,
        now: Instant,
        evolve: Callable[[RunState, event_pb2.RunEvent, Instant], None],
    ) -> None:
        self.state = state
        self.world = world
        self.now = now
        self.events: list[event_pb2.RunEvent] = []
        self.commands: list[Command] = []
        #: Want something done once the events are durable.
        self.command: Callable[[Command], None] = self.commands.append
        self.acks: list[tuple[str, int, executor_service_pb2.AckVerdict.ValueType]] = []
        #: Activations that can go on. A worklist instead of calls, so that no graph is too deep.
        self.agenda: deque[Activation] = deque()
        self.supersteps = 0
        self.work = Work()
        #: What the events weigh in which the server itself wrote something; what executors sent is bounded by their frame.
        self.bytes = 0
        self._evolve = evolve
        self._time = to_timestamp(now)

    def emit(self, kind: str, fact: Message) -> None:
        """Record a fact: the variant `kind` of RunEvent."""
        event = self.next_event()
        getattr(event, kind).CopyFrom(fact)
        self.bytes += fact.ByteSize()
        self.record(event)

    def next_event(self) -> event_pb2.RunEvent:
        """Return the next event, for the caller to fill in and `record`.

        The facts of the common path are built inside their event: a message that is built apart and copied costs twice
        as much, and there are four of them per node.
        """
        event = event_pb2.RunEvent()
        event.sequence = self.state.sequence + 1
        event.time.CopyFrom(self._time)
        return event

    def record(self, event: event_pb2.RunEvent) -> None:
        """Apply an event that is complete, and keep it."""
        self._evolve(self.state, event, self.now)
        self.events.append(event)

    def has_had_its_share(self, limits: RunLimits) -> bool:
        """Whether the decision has to give other runs a turn before another node goes on."""
        return (
            self.work.done > limits.max_work_per_decision
            or self.bytes > limits.max_bytes_per_decision
        )
