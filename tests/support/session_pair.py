"""Both halves of a session over a fake link, and a small engine behind the server's half.

Time stands still unless it is told to pass, and frames move only when they are told to; so every interleaving can be had.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import task_pb2
from stepgraph_client._session import ExecutorSession
from stepgraph_client._session import State as ExecutorState
from stepgraph_client._session_events import Identity, TasksReceived, Welcomed
from stepgraph_server.core.instants import SECOND, Instant, Span
from stepgraph_server.executors.registry import Registry
from stepgraph_server.executors.seats import Wanted
from stepgraph_server.executors.session import ServerSession
from stepgraph_server.executors.session_events import (
    ByeReceived,
    HelloReceived,
    OutcomesReceived,
    SessionClosed,
    Terms,
)
from tests.support.outlets import RecordingOutlet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepgraph_client._session_events import Attempt, ExecutorEvent
    from stepgraph_server.executors.seats import Seat
    from stepgraph_server.executors.session_events import SessionEvent

GRACE = Span(30 * SECOND)


@dataclass(slots=True)
class Assigned:
    """A task at the desk."""

    attempt: int = 0
    instance: str = ""
    recorded: bytes | None = None
    times_recorded: int = 0


@dataclass(slots=True)
class Desk:
    """A small engine: who has which attempt, and the one result of each task."""

    tasks: dict[str, Assigned] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)

    def wanted(self, instance: str, refs: Iterable[pb.AttemptRef]) -> list[pb.AttemptRef]:
        """Return the attempts that are current, and this instance's."""
        return [
            ref
            for ref in refs
            if (task := self.tasks.get(ref.task_id)) is not None
            and (task.attempt, task.instance) == (ref.attempt, instance)
            and task.recorded is None
        ]

    def lose(self, instance: str, but: Iterable[pb.AttemptRef] = ()) -> None:
        """Have every attempt of an instance done again by whoever comes, but for those that are listed."""
        kept = {ref.task_id for ref in but}
        for task_id, task in self.tasks.items():
            if task.instance == instance and task.recorded is None and task_id not in kept:
                task.instance = ""
                self.waiting.append(task_id)

    def record(self, instance: str, outcome: pb.AttemptOutcome) -> pb.AckVerdict.ValueType:
        """Take a result, and return its verdict."""
        task = self.tasks[outcome.task_id]
        data = outcome.SerializeToString()
        if (task.attempt, task.instance) != (outcome.attempt, instance):
            return pb.ACK_VERDICT_STALE
        if task.recorded is not None:
            same = task.recorded == data
            return pb.ACK_VERDICT_DUPLICATE if same else pb.ACK_VERDICT_CONFLICT
        task.recorded = data
        task.times_recorded += 1
        return pb.ACK_VERDICT_ACCEPTED


@dataclass(slots=True)
class Link:
    """One stream: what is on its way in either direction."""

    server: ServerSession
    up: deque[bytes] = field(default_factory=deque)
    down: deque[bytes] = field(default_factory=deque)
    seat: Seat | None = None


class SessionPair:
    """An executor, a server, and at most one stream that the executor knows of."""

    def __init__(self, max_in_flight: int = 8) -> None:
        self.now = Instant(1_000 * SECOND)
        self.desk = Desk()
        self.registry = Registry(GRACE, lambda _: None)
        identity = Identity(executor_id="w", instance_token=b"0123456789abcdef", labels={})
        capability = pb.Capability(agent=pb.Capability.Agent(kind="k"))
        self.executor = ExecutorSession(identity, [capability], max_in_flight)
        self.link: Link | None = None
        #: Attempts that the executor works on.
        self.working: list[Attempt] = []
        #: How often the function of each attempt was called.
        self.started: dict[Attempt, int] = {}
        self._session_ids = 0

    # ---- the link --------------------------------------------------------------------------------

    def connect(self) -> None:
        """Open a stream. If there was one, the executor has given it up, and the server may not know that yet."""
        if self.link is not None:
            self.executor.disconnected()
        self.executor.connected(self.now / SECOND)
        self.link = Link(server=ServerSession(Terms(), self.now))

    def lose_stream(self) -> None:
        """End the stream; what was on its way is lost."""
        if self.link is None:
            return
        self.executor.disconnected()
        if self.link.seat is not None:
            self.registry.lost(self.link.seat, self.now)
        self.link = None

    def send_up(self) -> None:
        """Put everything that the executor has to say on its way."""
        if self.link is not None:
            self.link.up.extend(self.executor.data_to_send())

    def send_down(self) -> None:
        """Put everything that the server has to say on its way."""
        if self.link is not None:
            self.link.down.extend(self.link.server.data_to_send(self.now))

    def deliver_up(self) -> None:
        """Let one frame arrive at the server."""
        link = self.link
        if link is not None and link.up:
            for event in link.server.receive(link.up.popleft(), self.now):
                self._on_server(link, event)

    def deliver_down(self) -> None:
        """Let one frame arrive at the executor."""
        if self.link is not None and self.link.down:
            for event in self.executor.receive(self.link.down.popleft(), self.now / SECOND):
                self._on_executor(event)

    def settle(self) -> None:
        """Let everything arrive that either side has to say."""
        while True:
            self.send_up()
            self.send_down()
            if self.link is None or not (self.link.up or self.link.down):
                return
            while self.link.up:
                self.deliver_up()
            while self.link.down:
                self.deliver_down()

    # ---- the server ------------------------------------------------------------------------------

    def _on_server(self, link: Link, event: SessionEvent) -> None:
        if isinstance(event, HelloReceived):
            joined = self.registry.join(event, RecordingOutlet(), self.now)
            seat = link.seat = joined.seat
            held = self.desk.wanted(seat.instance, event.held)
            results = self.desk.wanted(seat.instance, event.unacknowledged)
            self.desk.lose(seat.instance, but=(*held, *results))
            link.server.welcome(self._session_id(), Wanted(attempts=held, results=results))
            self.registry.open(seat, len(held))
        elif isinstance(event, OutcomesReceived):
            assert link.seat is not None
            for outcome in event.outcomes:
                verdict = self.desk.record(link.seat.instance, outcome)
                self.registry.release(link.seat)
                link.server.send_acks([(outcome.task_id, outcome.attempt, verdict)])
        elif isinstance(event, ByeReceived):
            assert link.seat is not None
            lost = self.registry.leave(link.seat)
            if lost is not None:
                self.desk.lose(lost.instance)
        else:
            assert not isinstance(event, SessionClosed), event

    def _session_id(self) -> str:
        self._session_ids += 1
        return f"s{self._session_ids}"

    def assign(self, task_id: str | None = None) -> bool:
        """Hand a new task, or one that waits, to the executor, if it has room."""
        if task_id is None:
            if not self.desk.waiting:
                return False
            task_id = self.desk.waiting[0]
        seat = self.registry.reserve("default", ("agent", "k"), ())
        if seat is None or self.link is None:
            return False
        if task_id in self.desk.waiting:
            self.desk.waiting.remove(task_id)
        task = self.desk.tasks.setdefault(task_id, Assigned())
        task.attempt += 1
        task.instance = seat.instance
        frame = task_pb2.Task(task_id=task_id, attempt=task.attempt)
        self.link.server.send_tasks([frame.SerializeToString()])
        return True

    def pass_time(self, span: Span) -> None:
        """Let time pass, and graces end."""
        self.now = Instant(self.now + span)
        for lost in self.registry.expire(self.now):
            self.desk.lose(lost.instance)

    # ---- the executor ----------------------------------------------------------------------------

    def _on_executor(self, event: ExecutorEvent) -> None:
        if isinstance(event, TasksReceived):
            for task in event.tasks:
                attempt = (task.task_id, task.attempt)
                self.working.append(attempt)
                self.started[attempt] = self.started.get(attempt, 0) + 1
        elif isinstance(event, Welcomed):
            # It stops what it has lost; a function that can't be stopped would finish, and nobody would listen.
            self.working = [each for each in self.working if each not in event.lost]

    def finish(self, index: int) -> None:
        """End the work on one attempt."""
        if self.working:
            task_id, attempt = self.working.pop(index % len(self.working))
            outcome = pb.AttemptOutcome(task_id=task_id, attempt=attempt)
            outcome.succeeded.agent.output.text = f"result of {task_id}#{attempt}"
            assert self.executor.finish((task_id, attempt), outcome.SerializeToString())

    def heal(self) -> None:
        """Connect, and let everything be done that is to be done."""
        if self.executor.state is not ExecutorState.LIVE:
            self.connect()
        self.settle()
        while True:
            while self.assign():
                pass
            self.settle()
            if not self.working:
                break
            while self.working:
                self.finish(0)
            self.settle()
