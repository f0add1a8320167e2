"""Executors as processes: the real half of a session, with work that goes well, badly, too late or not at all.

Rules: what an attempt ends with is `answers.outcome_of`, whatever happens on the way; a lie is one that a server can see through.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import task_pb2
from stepgraph_client._session import ExecutorSession, State
from stepgraph_client._session_events import (
    CancelRequested,
    Identity,
    Rejected,
    ServerSilent,
    TasksReceived,
    Welcomed,
)
from stepgraph_server.core.errors import Refused
from tests.simulation.answers import outcome_of
from tests.simulation.loop import Process
from tests.simulation.network import Link
from tests.simulation.server import MAX_INLINE_BYTES, NAMESPACE

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from stepgraph_client._session_events import Attempt, ExecutorEvent
    from tests.simulation.world import World


class Executor:
    """One process of an executor."""

    def __init__(
        self,
        world: World,
        executor_id: str,
        number: int,
        capabilities: Sequence[pb.Capability],
        max_in_flight: int,
    ) -> None:
        self.world = world
        self.executor_id = executor_id
        self.process = Process(world.loop, f"{executor_id}.{number}")
        self._token = f"token of {executor_id}, process {number}".encode()
        self.instance = hashlib.sha256(self._token).hexdigest()
        identity = Identity(executor_id=executor_id, instance_token=self._token, labels={})
        self.session = ExecutorSession(identity, capabilities, max_in_flight)
        self.link: Link | None = None
        self._dice = world.dice(f"executor {self.process.name}")
        self._max_in_flight = self._usual = max_in_flight
        self._working: dict[Attempt, task_pb2.Task] = {}
        #: Attempts that it will never answer by itself.
        self._frozen: set[Attempt] = set()
        #: How many turns of which program it holds.
        self._turns: dict[str, int] = {}
        self._asleep_until = 0.0
        self._lies = False
        self.is_done = False
        self.process.later(self._dice.uniform(0, 0.5), self._connect)
        self.process.later(1.0, self._tick)

    def _now(self) -> float:
        return self.world.loop.time()

    # Streams

    def _connect(self) -> None:
        if self.is_done or self.link is not None:
            return
        server = self.world.server
        if server is None or not server.is_up:
            self._connect_later()
            return
        link = self.link = Link(self.world.network, self.process, server.process)
        link.down.on_data = lambda data: self._when_awake(lambda: self._receive(link, data))
        link.down.on_end = lambda: self._when_awake(lambda: self._ended(link))
        self.session.connected(self._now())
        server.connect(link)
        self._flush()

    def _connect_later(self) -> None:
        self.process.later(self._dice.uniform(0.05, 2.0), self._connect)

    def _leave_stream(self) -> None:
        """Give the stream up, and open another."""
        if self.link is not None:
            self.link = None
            self.session.disconnected()
            self._connect_later()

    def _ended(self, link: Link) -> None:
        if link is not self.link:
            return
        if link.status == "HELLO_INVALID":
            self.world.trouble(f"{self.process.name}: its hello was refused")
        if link.status == "SESSION_SUPERSEDED":
            self.is_done = True
        self._leave_stream()

    def _when_awake(self, function: Any) -> None:
        delay_s = self._asleep_until - self._now()
        if delay_s > 0:
            # In the order in which they came: what sleeps longest is handled last.
            self._asleep_until += 1e-6
            self.process.later(delay_s + 1e-6, function)
        else:
            function()

    def _receive(self, link: Link, data: bytes) -> None:
        if link is not self.link:
            return
        if (dice := self.world.faults.strikes("net.given_up")) is not None:
            if dice.random() < 0.5:
                link.left_by_executor()
            self._leave_stream()
            return
        for event in self.session.receive(data, self._now()):
            self._handle(event)
        self._flush()

    def _flush(self) -> None:
        link = self.link
        if link is not None:
            for data in self.session.data_to_send():
                self.world.network.may_break(link)
                link.up.send(data)

    def _tick(self) -> None:
        if self.is_done:
            return
        if self._asleep_until <= self._now():
            for event in self.session.tick(self._now()):
                self._handle(event)
            self._flush()
        self.process.later(1.0, self._tick)

    def _handle(self, event: ExecutorEvent) -> None:
        match event:
            case TasksReceived():
                self._check_room()
                for task in event.tasks:
                    self._begin(task)
            case CancelRequested():
                for attempt in event.attempts:
                    self._cancel(attempt)
            case Welcomed():
                for attempt in event.lost:
                    self._drop(attempt)
            case ServerSilent():
                self._give_up()
            case Rejected():
                self.world.count("rejects")
            case _:
                # Acknowledgements, pings and drains: the session has done what is to be done.
                pass

    def _give_up(self) -> None:
        self.world.count("server silent")
        if self.link is not None:
            self.link.left_by_executor()
        self._leave_stream()

    def _check_room(self) -> None:
        if self.session.held > self._max_in_flight and not self._lies:
            self.world.trouble(
                f"{self.process.name} has {self.session.held} of {self._max_in_flight} attempts"
            )

    # Work

    def _begin(self, task: task_pb2.Task) -> None:
        attempt = (task.task_id, task.attempt)
        strikes = self.world.faults.strikes
        self._working[attempt] = task
        self._check_history(task)
        self.world.check_task(task)
        if strikes("exec.reads") is not None:
            self.world.spawn(self._read(task))
        if strikes("exec.reject") is not None:
            self._drop(attempt)
            self.session.give_back(attempt, "INVALID_REQUEST", "not now")
            return
        if strikes("exec.freeze") is not None:
            self._frozen.add(attempt)
            return
        slow = strikes("exec.slow")
        time_s = self._dice.uniform(0.01, 2.0) if slow is None else slow.choice((8.0, 30.0, 70.0))
        if task.input.llm.streaming:
            self.process.later(time_s / 2, self._show, attempt)
        self.process.later(time_s, self._when_awake, lambda: self._end(attempt))

    def _check_history(self, task: task_pb2.Task) -> None:
        step = task.input.step
        if not task.input.HasField("step"):
            return
        program = task.task_id.rpartition("/t")[0]
        known = step.history_start + len(step.history)
        if known != step.turn or step.history_start > self._turns.get(program, 0):
            self.world.trouble(
                f"{task.task_id}#{task.attempt} is polled with history from {step.history_start} to "
                f"{known} of {step.turn}, and {self.process.name} holds {self._turns.get(program, 0)}"
            )

    async def _read(self, task: task_pb2.Task) -> None:
        """Read the input that came with a task, which is recomputed for that."""
        try:
            data = await self.world.callers.persist(
                lambda parts: parts.engine.task_input(
                    NAMESPACE, task.task_id, task.attempt, self._token
                )
            )
        except Refused as refused:
            if refused.reason != "TASK_NOT_FOUND":
                self.world.trouble(f"reading {task.task_id}: {refused.reason} {refused}")
            return
        if task_pb2.TaskInput.FromString(data) != task.input:
            self.world.trouble(f"{task.task_id}#{task.attempt} reads another input than it got")

    def _show(self, attempt: Attempt) -> None:
        progress = task_pb2.TaskProgress()
        progress.text.text = "so far"
        self.session.show(attempt, progress)
        self._flush()

    def _end(self, attempt: Attempt) -> None:
        task = self._working.get(attempt)
        if task is None or not self.session.holds(attempt):
            return
        outcome = self._outcome(task)
        self._drop(attempt)
        reply = outcome.succeeded.step
        if outcome.succeeded.HasField("step") and reply.holds_turns:
            self._turns[task.task_id.rpartition("/t")[0]] = task.input.step.turn + 1
        self.session.finish(attempt, outcome.SerializeToString())
        self._flush()
        self._repeat(outcome)

    def _outcome(self, task: task_pb2.Task) -> pb.AttemptOutcome:
        strikes = self.world.faults.strikes
        outcome = pb.AttemptOutcome(task_id=task.task_id, attempt=task.attempt)
        if (dice := strikes("exec.fail")) is not None:
            outcome.failed.failure.code = "FLAKED"
            outcome.failed.failure.retryable = True
            if dice.random() < 0.5:
                outcome.failed.retry_after.FromSeconds(dice.choice((1, 6)))
            return outcome
        if strikes("exec.wrong_kind") is not None:
            if task.input.HasField("tool"):
                outcome.succeeded.condition.holds = True
            else:
                outcome.succeeded.tool.output.text = "wrong"
            return outcome
        outcome = outcome_of(task)
        if strikes("exec.oversize") is not None:
            self._say_too_much(outcome)
        return outcome

    def _say_too_much(self, outcome: pb.AttemptOutcome) -> None:
        """Send what is far too large past the client, which would not."""
        wrong = pb.AttemptOutcome(task_id=outcome.task_id, attempt=outcome.attempt)
        wrong.succeeded.tool.output.text = "x" * (MAX_INLINE_BYTES + 1)
        self._say(pb.ConnectRequest(results=pb.Results(outcomes=[wrong])))

    def _repeat(self, outcome: pb.AttemptOutcome) -> None:
        if self.session.state is not State.LIVE:
            return
        strikes = self.world.faults.strikes
        if strikes("exec.twice") is not None:
            self._say(pb.ConnectRequest(results=pb.Results(outcomes=[outcome])))
        if strikes("exec.conflict") is not None:
            other = pb.AttemptOutcome(task_id=outcome.task_id, attempt=outcome.attempt)
            other.failed.failure.code = "OTHERWISE"
            self._say(pb.ConnectRequest(results=pb.Results(outcomes=[other])))

    def _say(self, frame: pb.ConnectRequest) -> None:
        if self.link is not None and self.session.state is State.LIVE:
            self._lies = True
            self.link.up.send(frame.SerializeToString())

    def _cancel(self, attempt: Attempt) -> None:
        if self.world.faults.strikes("exec.ignores_cancel") is None:
            self.process.later(self._dice.uniform(0.01, 3.0), self._stop, attempt)

    def _stop(self, attempt: Attempt) -> None:
        if self.session.holds(attempt):
            self._drop(attempt)
            outcome = pb.AttemptOutcome(task_id=attempt[0], attempt=attempt[1])
            outcome.cancelled.SetInParent()
            self.session.finish(attempt, outcome.SerializeToString())
            self._flush()

    def _drop(self, attempt: Attempt) -> None:
        self._working.pop(attempt, None)
        self._frozen.discard(attempt)

    # What the world does to it

    def die(self, dice: random.Random) -> None:
        """End, as a process does that is killed; its machine may go with it, and then nobody tells the server."""
        self.is_done = True
        self.process.kill()
        if self.link is not None:
            if dice.random() < 0.3:
                self.link.turn_black(dice)
            self.link.left_by_executor()

    def leave(self) -> None:
        """Say bye, with whatever it still has."""
        self.is_done = True
        self.process.call(self._say_bye)

    def _say_bye(self) -> None:
        self.session.bye("it was asked to")
        self._flush()
        if self.link is not None:
            self.link.left_by_executor()
            self.link = None

    def sleep(self, time_s: float) -> None:
        """Stop for a while, as with SIGSTOP."""
        self._asleep_until = max(self._asleep_until, self._now() + time_s)

    def resize(self, max_in_flight: int) -> None:
        """Take more at once, or less, or nothing."""
        self._lies = True  # what it has now may be more than that
        self.process.call(self._resize, max_in_flight)

    def _resize(self, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight
        self.session.resize(max_in_flight)
        self._flush()

    def restore(self) -> None:
        """Take as much at once as in the beginning."""
        if self._max_in_flight != self._usual and not self.is_done:
            self.process.call(self._resize, self._usual)

    def talk_nonsense(self, dice: random.Random) -> None:
        """Send bytes that are no frame."""
        if self.link is not None and self.session.state is State.LIVE:
            self.link.up.send(dice.randbytes(dice.randint(0, 40)))

    def claim(self, dice: random.Random) -> None:
        """Report attempts that it does not have: of nobody, of the past, or somebody else's."""
        # What names no attempt has its whole frame rejected, so it comes in one of its own.
        nonsense = pb.AttemptOutcome(task_id="no slash", attempt=1)
        self.process.call(self._say, pb.ConnectRequest(results=pb.Results(outcomes=[nonsense])))
        outcomes = [pb.AttemptOutcome(task_id="r-none/1/n/t0/e0", attempt=1)]
        for run_id, book in self.world.ledger.books.items():
            others = [
                (task_id, attempt)
                for task_id, attempt in book.assigned.items()
                if book.holders[task_id] != self.instance
            ]
            live = [each for each in others if each not in book.ended]
            for task_id, attempt in (*live, *dice.sample(others, min(2, len(others)))):
                outcomes.append(pb.AttemptOutcome(task_id=f"{run_id}/{task_id}", attempt=attempt))
        for outcome in outcomes:
            outcome.succeeded.tool.output.text = "stolen"
        self.process.call(self._say, pb.ConnectRequest(results=pb.Results(outcomes=outcomes)))

    def thaw(self) -> None:
        """Answer what it has not answered, late as it is."""
        for attempt in sorted(self._frozen):
            self.process.call(self._end, attempt)


__all__ = ["Executor"]
