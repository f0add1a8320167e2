"""Executors of a script: they take attempts, answer, fall silent, go away and come back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from stepgraph.v1 import conversation_pb2, task_pb2
from stepgraph.v1 import executor_service_pb2 as pb
from tests.support.hellos import agent, hello, received

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stepgraph_server.core.instants import Span
    from stepgraph_server.executors.seats import Ack, Seat
    from tests.support.engine_rig import Rig

    Attempt = tuple[str, int]
    Script = Callable[[task_pb2.Task], "pb.AttemptOutcome | None"]


class Session:
    """One session of an executor: the outlet of its seat. What is said after its end is lost, as on a real stream."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.is_over = False
        self.closed_with = ""
        self.seat: Seat | None = None

    def send_tasks(self, tasks: Sequence[bytes]) -> None:
        if not self.is_over:
            for data in tasks:
                self.executor.take(task_pb2.Task.FromString(data))

    def send_cancels(self, attempts: Sequence[pb.AttemptRef], reason: str, grace: Span) -> None:
        if not self.is_over:
            self.executor.cancels.extend((ref.task_id, ref.attempt, reason) for ref in attempts)

    def send_acks(self, acks: Sequence[Ack]) -> None:
        if not self.is_over:
            for ack in acks:
                self.executor.take_ack(ack)

    def reject(self, attempt: pb.AttemptRef, reason: str, message: str) -> None:
        del attempt, reason, message

    def drain(self, reason: str, grace: Span) -> None:
        del reason, grace

    def close(self, reason: str, message: str, metadata: Mapping[str, str]) -> None:
        del message, metadata
        self.is_over = True
        self.closed_with = reason


class Executor:
    """One process of an executor. `script` answers each attempt; None leaves it running."""

    def __init__(
        self,
        rig: Rig,
        executor_id: str = "e1",
        *,
        token: bytes = b"token of a test.",
        capabilities: Sequence[pb.Capability] | None = None,
        max_in_flight: int = 4,
        namespace: str = "default",
        script: Script | None = None,
    ) -> None:
        self.rig = rig
        self.executor_id = executor_id
        self.token = token
        self.capabilities = capabilities or [agent("worker")]
        self.max_in_flight = max_in_flight
        self.namespace = namespace
        self.script = script
        self.session: Session | None = None
        #: Attempts that it works on, and reports that were not acknowledged.
        self.running: dict[Attempt, task_pb2.Task] = {}
        self.unacknowledged: dict[Attempt, pb.AttemptOutcome] = {}
        self.received: list[Attempt] = []
        self.cancels: list[tuple[str, int, str]] = []
        self.acks: list[Ack] = []
        self.most_running = 0

    @property
    def seat(self) -> Seat:
        """Its seat in the present session."""
        assert self.session is not None
        assert self.session.seat is not None
        return self.session.seat

    # Sessions

    async def connect(self) -> Executor:
        """Say hello with all that it has, and do what the welcome says."""
        rig = self.rig
        greeting = hello(
            self.executor_id,
            token=self.token,
            namespace=self.namespace,
            capabilities=self.capabilities,
            max_in_flight=self.max_in_flight,
        )
        greeting.held_attempts.extend(_ref(attempt) for attempt in self.running)
        greeting.unacknowledged_results.extend(_ref(attempt) for attempt in self.unacknowledged)
        said = received(greeting)
        session = self.session = Session(self)
        joined = rig.registry.join(said, session, rig.clock.now())
        session.seat = joined.seat
        if joined.superseded is not None:
            joined.superseded.outlet.close("SESSION_SUPERSEDED", "", {})
        if joined.lost is not None:
            rig.dispatcher.lost(joined.lost)
        wanted = await rig.dispatcher.joined(joined.seat, said.held, said.unacknowledged)
        if session.is_over:
            return self
        kept = {(ref.task_id, ref.attempt) for ref in wanted.attempts}
        resent = {(ref.task_id, ref.attempt) for ref in wanted.results}
        self.running = {key: task for key, task in self.running.items() if key in kept}
        self.unacknowledged = {k: v for k, v in self.unacknowledged.items() if k in resent}
        rig.registry.open(joined.seat, len(wanted.attempts))
        if self.unacknowledged:
            rig.dispatcher.outcomes(joined.seat, list(self.unacknowledged.values()))
        return self

    def disconnect(self) -> None:
        """Lose the stream."""
        assert self.session is not None
        self.session.is_over = True
        self.rig.registry.lost(self.seat, self.rig.clock.now())

    def leave(self) -> None:
        """Say bye."""
        assert self.session is not None
        self.session.is_over = True
        lost = self.rig.registry.leave(self.seat)
        if lost is not None:
            self.rig.dispatcher.lost(lost)

    # Work

    def take(self, task: task_pb2.Task) -> None:
        """Receive an attempt."""
        attempt = (task.task_id, task.attempt)
        self.rig.check_sent(self.namespace, task)
        self.received.append(attempt)
        self.running[attempt] = task
        self.most_running = max(self.most_running, len(self.running))
        if self.seat.max_in_flight:
            self.rig.check(
                len(self.running) <= self.max_in_flight,
                f"{self.executor_id} has {len(self.running)} of {self.max_in_flight} attempts",
            )
        if self.script is not None:
            asyncio.get_running_loop().call_soon(self._play, task)

    def _play(self, task: task_pb2.Task) -> None:
        if self.script is not None and (task.task_id, task.attempt) in self.running:
            outcome = self.script(task)
            if outcome is not None:
                self.report(outcome)

    def accept(self) -> None:
        """Say that all that it has has arrived."""
        self.rig.dispatcher.accepted(self.seat, [_ref(attempt) for attempt in self.running])

    def report(self, *outcomes: pb.AttemptOutcome) -> None:
        """Report outcomes in one frame; while there is no session they are kept."""
        for outcome in outcomes:
            attempt = (outcome.task_id, outcome.attempt)
            self.running.pop(attempt, None)
            self.unacknowledged[attempt] = outcome
        if self.session is not None and not self.session.is_over:
            self.rig.dispatcher.outcomes(self.seat, outcomes)

    def finish_all(self) -> None:
        """Report that all that runs went well, in one frame."""
        self.report(*(succeeded(task) for task in self.running.values()))

    def take_ack(self, ack: Ack) -> None:
        """Receive a verdict."""
        task_id, attempt, verdict = ack
        self.acks.append(ack)
        self.unacknowledged.pop((task_id, attempt), None)
        if verdict == pb.ACK_VERDICT_ACCEPTED:
            self.rig.check_recorded(self.namespace, task_id, attempt)

    def verdicts(self) -> list[str]:
        """Return the verdicts so far, short."""
        return [pb.AckVerdict.Name(v).removeprefix("ACK_VERDICT_") for _, _, v in self.acks]


def _ref(attempt: Attempt) -> pb.AttemptRef:
    return pb.AttemptRef(task_id=attempt[0], attempt=attempt[1])


def succeeded(task: task_pb2.Task, text: str = "done") -> pb.AttemptOutcome:
    """Return that an attempt went well."""
    outcome = pb.AttemptOutcome(task_id=task.task_id, attempt=task.attempt)
    match task.input.WhichOneof("kind"):
        case "llm":
            message = outcome.succeeded.llm.message
            message.role = conversation_pb2.ROLE_ASSISTANT
            message.content.add().text.text = text
        case "tool":
            outcome.succeeded.tool.output.text = text
        case _:
            outcome.succeeded.agent.output.text = text
    return outcome


def failed(task: task_pb2.Task, code: str = "BROKEN") -> pb.AttemptOutcome:
    """Return that an attempt failed."""
    outcome = pb.AttemptOutcome(task_id=task.task_id, attempt=task.attempt)
    outcome.failed.failure.code = code
    outcome.failed.failure.message = "it broke"
    return outcome


def cancelled(task: task_pb2.Task) -> pb.AttemptOutcome:
    """Return that an attempt was stopped."""
    outcome = pb.AttemptOutcome(task_id=task.task_id, attempt=task.attempt)
    outcome.cancelled.SetInParent()
    return outcome
