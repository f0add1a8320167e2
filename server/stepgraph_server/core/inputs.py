"""What happens to a run from outside, what it answers, and what it wants done.

Rules: inputs are facts or wishes that somebody else observed; time, chance and the world come in with them. Commands are
wishes of the run's that may be carried out once the events of the same decision are durable, and not before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from stepgraph_server.core.instants import SECOND, Span

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from stepgraph.v1 import (
        event_pb2,
        executor_service_pb2,
        failure_pb2,
        interrupt_pb2,
        llm_pb2,
        run_pb2,
        task_pb2,
        value_pb2,
    )
    from stepgraph_server.core.graph import CompiledGraph
    from stepgraph_server.core.state import Task

Selector: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """An executor that has room reserved for one attempt."""

    executor_id: str
    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOffer:
    """A tool that connected executors offer."""

    definition: llm_pb2.ToolDefinition
    digest: str
    #: A person must approve each call; one of those who offer this definition says so.
    requires_approval: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """The server's limits that the rules need."""

    max_events: int = 200_000
    max_journal_bytes: int = 256 * 1024 * 1024
    max_inline_value_bytes: int = 256 * 1024
    max_losses: int = 3
    #: Effects of one Await, and specs of one Spawn.
    max_fan_out: int = 10_000
    cancel_grace: Span = Span(10 * SECOND)
    #: Supersteps that one decision may start before it yields to other runs.
    max_supersteps_per_decision: int = 64
    #: Units that one decision may work before it yields: 10 ms or less, and as much again for a node that is under way; see
    #: `work`.
    max_work_per_decision: int = 24_000_000
    #: Runs above a child run.
    max_depth: int = 16
    #: A root and all runs below it.
    max_runs_per_root: int = 10_000
    #: What the events of one decision may weigh before it yields, and what one node may write. A batch of events is one
    #: row of the journal, and whoever watches holds it whole.
    max_bytes_per_decision: int = 1024 * 1024


class World(Protocol):
    """What the rules may ask about the world outside, within one decision."""

    @property
    def limits(self) -> RunLimits:
        """The server's limits."""
        ...

    def place(self, task: Task) -> Placement | None:
        """Reserve room for one attempt at an executor that can take the task, or return None."""
        ...

    def capable(self, task: Task) -> int:
        """Count the executors that are connected and could take the task if they had room."""
        ...

    def tools(self, selector: Selector) -> tuple[ToolOffer, ...]:
        """Return the tools that executors offer which bear the labels of `selector`, by name. The same object until it changes."""
        ...

    def requires_approval(self, task: Task) -> bool:
        """Whether an executor that offers the tool of a task says that a person must approve each call.

        Any digest of the tool counts, if the task may go to any.
        """
        ...

    def jitter(self) -> float:
        """Return a number from -1 to 1 by chance."""
        ...


# Inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The run begins."""

    started: event_pb2.RunStarted


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """The run begins with the prefix of another, which the state at hand is made of."""

    forked: event_pb2.RunForked
    #: The graph from here on; None: the same as before.
    graph: CompiledGraph | None = None
    #: Answers to questions that were open there, by the activation that asks.
    answers: tuple[tuple[str, interrupt_pb2.InterruptAnswer], ...] = ()
    #: Results of tasks that were outstanding there.
    results: tuple[tuple[str, task_pb2.TaskResult], ...] = ()
    answered_by: str = ""
    #: The other run is over, so nothing of it waits for the tokens of other systems any more, and this one may.
    keep_tokens: bool = False


@dataclass(slots=True, kw_only=True)
class Outcomes:
    """An executor reports how attempts ended; all of one frame that concern the run.

    Each outcome comes with the id of its task relative to the run; its own is the full one.
    """

    instance: str
    #: Where they came from, and the verdicts go to; of no interest to the rules.
    source: object = None
    outcomes: tuple[tuple[str, executor_service_pb2.AttemptOutcome], ...]
    #: Digests of stored values that results refer to and that do not exist, by position in `outcomes`. The core can't
    #: look: who delivers this asks `results.stored_digests`, and the store.
    missing: Mapping[int, str] = field(default_factory=dict)
    #: Positions in `outcomes` of replies that wait for a token for which a question of another run waits.
    taken: AbstractSet[int] = frozenset()


@dataclass(slots=True, kw_only=True)
class AttemptRef:
    """An attempt of a task of this run."""

    task_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptsLost:
    """Attempts ended without having been tries."""

    attempts: tuple[AttemptRef, ...]
    reason: event_pb2.TaskLossReason.ValueType
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomFound:
    """There may be room for tasks that wait."""

    task_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    """Something may be due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Somebody answers a question."""

    interrupt_id: str
    answer: interrupt_pb2.InterruptAnswer
    answered_by: str
    #: The trace that the answer is part of; "" is none.
    traceparent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Somebody wants the run to stop."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Somebody sends a signal."""

    name: str
    correlation: str = ""
    payload: value_pb2.Value | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Somebody wants nothing of the run to start for now."""

    reason: str
    #: It is the run's parent that was paused.
    by_parent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpause:
    """Somebody wants the run to go on."""

    #: It is the run's parent that goes on: one that was paused by itself stays paused.
    by_parent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnd:
    """What a child run that is final leaves to its parent."""

    output: value_pb2.Value | None
    variables: Mapping[str, value_pb2.Value]
    #: Why it did not complete; None if it did.
    failure: failure_pb2.Failure | None
    usage: llm_pb2.Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSeen:
    """A child run is as it says here. Saying it again is harmless, and what is older than what was said before is never said."""

    task_id: str
    run_id: str
    graph: run_pb2.GraphVersion
    status: int
    #: How it ended; None while it lives.
    end: ChildEnd | None
    #: It is paused because its parent was. One that somebody paused by itself must not be told to go on whenever it is seen.
    paused_by_parent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRefused:
    """There is no child run for a task, and there will be none."""

    task_id: str
    failure: failure_pb2.Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolve:
    """Runs below this root name graphs that it does not know yet; what it knows already stays as it is."""

    graphs: Mapping[str, run_pb2.GraphVersion]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoOn:
    """A decision yielded before it was at rest, or the server starts again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Somebody wants to see the run as it is; nothing happens."""


Input: TypeAlias = (
    Start
    | Fork
    | Outcomes
    | AttemptsLost
    | RoomFound
    | TimePassed
    | Answer
    | Cancel
    | Signal
    | Pause
    | Unpause
    | ChildSeen
    | ChildRefused
    | Resolve
    | GoOn
    | Look
)


# Commands


@dataclass(slots=True)
class Send:
    """Send an attempt to the executor that it is assigned to."""

    task: Task
    attempt: int
    executor_id: str
    instance: str


@dataclass(slots=True, kw_only=True)
class Enqueue:
    """Remember that a task waits for room."""

    task: Task


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAttempt:
    """Tell an executor to stop an attempt."""

    task_id: str
    attempt: int
    executor_id: str
    instance: str
    reason: str


@dataclass(slots=True)
class AttemptOver:
    """An attempt has ended; what it showed does not count unless it gave the result."""

    task_id: str
    attempt: int
    instance: str
    discarded: bool


@dataclass(slots=True, kw_only=True)
class StartChild:
    """Create the child run that performs a task, unless there is one."""

    task: Task


@dataclass(frozen=True, slots=True, kw_only=True)
class TellChild:
    """Let something happen to a child run."""

    task_id: str
    run_id: str
    happened: Cancel | Pause | Unpause


@dataclass(frozen=True, slots=True, kw_only=True)
class TellParent:
    """Tell the parent of a child run how this is now."""

    parent_run_id: str
    seen: ChildSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class Yield:
    """Give other runs a turn, then come back with GoOn."""


Command: TypeAlias = (
    Send | Enqueue | StopAttempt | AttemptOver | StartChild | TellChild | TellParent | Yield
)


@dataclass(slots=True)
class Decision:
    """What a decision gives: events to make durable, then commands to carry out, and verdicts for the executor."""

    events: list[event_pb2.RunEvent]
    commands: list[Command]
    acks: list[tuple[str, int, executor_service_pb2.AckVerdict.ValueType]]
