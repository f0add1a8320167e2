"""A run of the core, driven by a test, that watches the invariants at every step.

Each input is decided twice: by the state held, and by one folded from the stored events. Both must decide the same, so a
restart between any two steps changes nothing. What an executor would get is built from both, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph_server.core.errors import Refused
from stepgraph_server.core.inputs import AttemptOver, Enqueue, Fork, GoOn, Yield
from stepgraph_server.core.instants import SECOND, Instant
from stepgraph_server.core.invariants import check, difference, goes_on_by_itself
from stepgraph_server.core.preparing import prepare
from stepgraph_server.core.run import decide, fold, new_state
from stepgraph_server.core.state import TaskStatus
from tests.support.core_trace import command_lines, event_line
from tests.support.core_world import PlayedWorld

if TYPE_CHECKING:
    from stepgraph.v1 import event_pb2
    from stepgraph_server.core.graph import CompiledGraph
    from stepgraph_server.core.inputs import Decision, Input
    from stepgraph_server.core.state import RunState

RUN_ID = "r1"
START = Instant(1_700_000_000 * SECOND)


class Broken(AssertionError):  # named for what happened
    """An invariant does not hold."""


class PlayedRun:
    """A run with its journal. Transient notes of tasks are copied to what is folded beside it."""

    def __init__(self, graph: CompiledGraph, world: PlayedWorld | None = None) -> None:
        self.graph = graph
        self.world = world if world is not None else PlayedWorld()
        self.now = START
        self.state: RunState = new_state(RUN_ID, graph, self.now)
        self.events: list[event_pb2.RunEvent] = []
        #: Graphs that it was forked to, by digest.
        self.graphs: dict[str, CompiledGraph] = {}
        #: Tasks that wait for room, in order.
        self.waiting: list[str] = []
        #: The instance that has or had an attempt.
        self.instances: dict[tuple[str, int], str] = {}
        #: A decision yielded, and was not taken up again.
        self.has_yielded = False

    def happen(self, happened: Input) -> Decision:
        """Let something happen; raises Refused as the core does, and Broken if an invariant does not hold."""
        twin, twin_world = self._twin(), self.world.apart()
        try:
            decision = decide(self.state, happened, self.world, self.now)
        except Refused:
            if isinstance(happened, Fork):
                # Nobody has this state: a fork that is refused was never there.
                raise
            # I7: a refused input changes nothing.
            self._compare("I7", self._twin(), twin)
            self._check()
            raise
        self._compare_decisions(decision, decide(twin, happened, twin_world, self.now))
        self.events += decision.events
        self.has_yielded = Yield() in decision.commands or (
            self.has_yielded and not isinstance(happened, GoOn)
        )
        self._note(decision)
        self._compare("I6", self.state, twin)
        self._check()
        return decision

    def restart(self) -> None:
        """Forget the state, and fold it from the journal."""
        self.state = self._fold()
        self.waiting = [
            task.id
            for task in self.state.tasks.values()
            if task.status is TaskStatus.QUEUED and not task.held
        ]

    def fork(self, sequence: int, fork: Fork) -> PlayedRun:
        """Return the run that begins with this one's events up to `sequence`, once it has begun. Raises Refused."""
        forked = PlayedRun(self.graph, self.world)
        forked.now = self.now
        forked.graphs = {**self.graphs, **({fork.graph.digest: fork.graph} if fork.graph else {})}
        forked.events = self.events[:sequence]
        forked.state = forked._fold()
        forked.happen(fork)
        return forked

    def _fold(self) -> RunState:
        return fold(RUN_ID, self.graph, self.events, self.graphs)

    def _twin(self) -> RunState:
        if not self.events:
            return new_state(RUN_ID, self.graph, self.now)
        twin = self._fold()
        twin.journal_bytes = self.state.journal_bytes
        for task_id, task in self.state.tasks.items():
            other = twin.tasks[task_id]
            other.accepted, other.progress_at, other.waits = (
                task.accepted,
                task.progress_at,
                task.waits,
            )
        return twin

    def _note(self, decision: Decision) -> None:
        for event in decision.events:
            match event.WhichOneof("kind"):
                case "task_scheduled" if event.task_scheduled.HasField("assignment"):
                    fact = event.task_scheduled
                    self._assigned(fact.task_id, fact.assignment.attempt, fact.assignment.instance)
                case "task_assigned":
                    given = event.task_assigned
                    self._assigned(
                        given.task_id, given.assignment.attempt, given.assignment.instance
                    )
                case _:
                    pass
        for command in decision.commands:
            if isinstance(command, Enqueue) and command.task.id not in self.waiting:
                self.waiting.append(command.task.id)
            elif isinstance(command, AttemptOver):
                self.world.free(command.instance)

    def _assigned(self, task_id: str, attempt: int, instance: str) -> None:
        self.instances[task_id, attempt] = instance

    def _check(self) -> None:
        if not self.events:
            return
        troubles = check(self.state, self.events)
        if goes_on_by_itself(self.state) and not self.has_yielded:
            troubles.append("something is left to decide, and no decision yielded")
        folded = self._fold()
        for task_id, task in self.state.tasks.items():
            held = prepare(self.state, task).build(self.state)
            again = prepare(folded, folded.tasks[task_id]).build(folded)
            if held != again:
                troubles.append(f"the input of {task_id} is another after a fold")
        if troubles:
            raise Broken("\n".join(troubles))

    @staticmethod
    def _compare(name: str, one: RunState, other: RunState) -> None:
        found = difference(one, other)
        if found:
            raise Broken(f"{name}:\n" + "\n".join(found))

    @staticmethod
    def _compare_decisions(one: Decision, other: Decision) -> None:
        if (
            one.events != other.events
            or command_lines(one.commands) != command_lines(other.commands)
            or one.acks != other.acks
        ):
            lines = [*map(event_line, one.events), *command_lines(one.commands)]
            others = [*map(event_line, other.events), *command_lines(other.commands)]
            raise Broken("I6: held:\n" + "\n".join(lines) + "\nfolded:\n" + "\n".join(others))


__all__ = ["RUN_ID", "START", "Broken", "PlayedRun"]
