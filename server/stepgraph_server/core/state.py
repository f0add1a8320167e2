"""The folded state of a run: what its events add up to.

Rules: only `evolve` (through the `apply_…` functions of each concept) changes what is here, except for the fields that
are marked transient: they are caches and notes that a fold does not need and a restart may lose. Messages in here are
never changed after they were put in. What every node makes one of may be built by position: by name, building it costs
twice as much, and a node builds some fifteen objects.
"""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from stepgraph.v1 import llm_pb2, run_pb2
from stepgraph_server.core.conversation import Conversation
from stepgraph_server.core.due import DueTimes

if TYPE_CHECKING:
    from stepgraph.v1 import (
        conversation_pb2,
        event_pb2,
        failure_pb2,
        interrupt_pb2,
        state_pb2,
        task_pb2,
        value_pb2,
    )
    from stepgraph_server.core.decisions import OfferedTool
    from stepgraph_server.core.graph import CompiledGraph, CompiledNode
    from stepgraph_server.core.instants import Instant
    from stepgraph_server.core.policies import Limits, RetryPolicy
    from stepgraph_server.core.spawn import Spawn
    from stepgraph_server.core.step_program import Ended, StepProgram

#: The version of the rules by which new runs are walked. Old journals keep theirs.
RULES_VERSION: Final = 1

#: How many finished tasks a run remembers, to tell a repeated result from a late one.
MAX_REMEMBERED_TASKS: Final = 64


@dataclass(slots=True)
class Carried:
    """The part of the state that travels along edges."""

    last_result: value_pb2.Value | None = None
    last_error: failure_pb2.Failure | None = None
    decision: state_pb2.GraphDecision | None = None
    #: The digest of the tools that the decision was made with; "" if there is none.
    tools_digest: str = ""
    paradigm: str = ""
    #: What a Goto carries to the node that it leads to, until that node is entered or has ended.
    handed: value_pb2.Value | None = None


class CallNote(NamedTuple):
    """Why a call has no result."""

    call_id: str
    text: str
    #: A person refused it, so nobody may perform it any more.
    denied: bool


@dataclass(slots=True)
class Delta:
    """What one activation has written to the shared part, over the base that all of its superstep see."""

    #: Writes in order; None deletes.
    writes: list[tuple[str, value_pb2.Value | None]] = field(default_factory=list)
    #: What the activation itself sees of the variables that it wrote.
    overlay: dict[str, value_pb2.Value | None] = field(default_factory=dict)
    messages: list[conversation_pb2.Message] = field(default_factory=list)
    terminate: bool = False
    #: What is to be said of calls without a result.
    notes: tuple[CallNote, ...] = ()


#: What a node has written before it acts. Shared: a delta is never changed once an activation has it.
NOTHING_WRITTEN: Final = Delta()


class Phase(enum.Enum):
    """Where an activation is."""

    #: Its question is open; the action has not run.
    ASKING = enum.auto()
    #: Its action has asked for an answer, which is still out.
    WAITING = enum.auto()
    #: Its action runs.
    RUNNING = enum.auto()
    #: The action has ended well; executors decide conditions of its edges.
    ROUTING = enum.auto()
    #: It has ended, and waits for the others of its superstep.
    ENDED = enum.auto()


class Outcome(enum.Enum):
    """How an activation ended."""

    COMPLETED = enum.auto()
    FAILED = enum.auto()
    CANCELLED = enum.auto()


class EdgeResult(NamedTuple):
    """What became of an edge; the same fields as EdgeOutcome. A message per edge and node would cost more than looking at it."""

    edge_id: str
    verdict: event_pb2.EdgeVerdict.ValueType


@dataclass(slots=True)
class Settled:
    """What the activation's view is with what its action ended with, and what became of its edges."""

    carried: Carried
    delta: Delta
    edges: tuple[EdgeResult, ...] = ()


@dataclass(slots=True)
class Activation:
    """One running of a node."""

    id: str
    node: CompiledNode
    superstep: int
    carried: Carried
    #: What the node was entered with.
    entered_with: Carried
    delta: Delta = field(default_factory=Delta)
    phase: Phase = Phase.RUNNING
    outcome: Outcome | None = None
    #: The last turn whose tasks were scheduled; -1 before the first.
    turn: int = -1
    #: Results of that turn by position; None while outstanding.
    results: list[Ended | None] = field(default_factory=list)
    #: The calls that the turn's tasks perform, by position; "" where none.
    call_ids: list[str] = field(default_factory=list)
    outstanding: int = 0
    #: How many of these take no place under a concurrency cap: they wait for a person, or a child run performs them.
    placeless: int = 0
    #: Tasks of that turn that a concurrency cap holds back, in order.
    held: deque[Task] = field(default_factory=deque)
    #: The id of its question, if it asked one.
    question_id: str = ""
    answer: interrupt_pb2.InterruptAnswer | None = None
    #: Results of custom conditions by edge id; None while outstanding.
    conditions: dict[str, bool | failure_pb2.Failure | None] = field(default_factory=dict)
    edges: tuple[EdgeResult, ...] = ()
    #: Its action ended well, so what it wrote is kept even if a condition fails afterwards.
    acted: bool = False
    failure: failure_pb2.Failure | None = None
    #: The digest of the tools that its model was offered.
    tools_digest: str = ""
    #: The step program behind it, from its first poll on.
    program: StepProgram | None = None
    #: What it has spawned, from when that was asked for until it goes on.
    spawn: Spawn | None = None
    #: What spawned it; None for a node of the superstep.
    parent: Activation | None = None
    #: Its place among what was spawned with it.
    place: int = 0
    #: Tokens that a node of the superstep has used, with all that it spawned.
    spent: int = 0
    #: The call that the node answers; None if it answers none.
    call: conversation_pb2.ToolCallBlock | None = None
    #: The input of spawned work, and of a node that answers a call.
    given: value_pb2.Value | None = None
    #: Transient: what its action gave, so that evolve need not ask the action again.
    settled: Settled | None = None

    @property
    def root(self) -> Activation:
        """The node of the superstep that it belongs to: itself, or what spawned it, however far up."""
        found = self
        while found.parent is not None:
            found = found.parent
        return found

    @property
    def is_full(self) -> bool:
        """Whether one more task has to wait until others have ended."""
        return 0 < self.node.max_concurrency <= self.outstanding - self.placeless


class TaskStatus(enum.Enum):
    """Where a task is."""

    #: A person has to approve it before it is first tried.
    ASKING = enum.auto()
    #: It waits for an executor, or for its turn under a concurrency cap.
    QUEUED = enum.auto()
    #: An executor has it.
    ASSIGNED = enum.auto()
    #: It waits for its next try.
    BACKOFF = enum.auto()
    #: It is a sleep, which time ends and no executor.
    SLEEPING = enum.auto()
    #: A child run performs it, which is there or is to be created.
    CHILD = enum.auto()


@dataclass(slots=True)
class Task:
    """An outstanding task."""

    id: str
    activation: Activation
    key: tuple[str, ...]
    requirement: task_pb2.Requirement
    selector: tuple[tuple[str, str], ...]
    retry: RetryPolicy
    limits: Limits
    #: It streams, so an idle limit applies.
    streaming: bool
    scheduled_at: Instant
    queued_at: Instant
    label: str = ""
    call_id: str = ""
    #: The edge whose condition it decides; "" for an effect.
    edge_id: str = ""
    #: It polls a step program.
    poll: bool = False
    #: Its place: the turn of its activation, and the position in that.
    turn: int = 0
    index: int = 0
    status: TaskStatus = TaskStatus.QUEUED
    attempt: int = 0
    executor_id: str = ""
    instance: str = ""
    tries: int = 0
    losses: int = 0
    assigned_at: Instant | None = None
    retry_at: Instant | None = None
    #: When a sleep is over.
    wakes_at: Instant | None = None
    last_failure: failure_pb2.Failure | None = None
    #: It was recorded that its child run has begun, and that this waits for people.
    child_started: bool = False
    child_waits: bool = False
    #: It was said that no executor can take it.
    unclaimed: bool = False
    #: A concurrency cap holds it back until others of its turn have ended.
    held: bool = False
    #: The process that it would best go to; "" if any will do.
    prefers: str = ""
    #: The question about it, if there was one.
    question_id: str = ""
    #: The digest of what a person has approved; "" if nobody has.
    approved: str = ""
    #: The arguments that a person has put in place of those that were asked for.
    args: str | None = None
    #: Transient: it was put among those that wait for room.
    waits: bool = False
    #: Transient: the executor has it for sure.
    accepted: bool = False
    #: Transient: when the attempt last showed progress.
    progress_at: Instant | None = None
    #: Transient: the executor was told to stop it.
    cancel_sent: bool = False
    #: Transient: the parts of the input that were made when it was scheduled.
    prepared: object = None


@dataclass(slots=True, kw_only=True)
class Question:
    """An interrupt of the run, open or not."""

    #: As it was opened.
    interrupt: interrupt_pb2.Interrupt
    open: bool = True
    #: It is asked in the middle of an action, which gets the answer as a result.
    suspends: bool = False
    answer: interrupt_pb2.InterruptAnswer | None = None
    answered_by: str = ""
    close_reason: str = ""
    closed_at: Instant | None = None


class KeptSignal(NamedTuple):
    """A signal that nobody has taken."""

    name: str
    correlation: str
    payload: value_pb2.Value


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSet:
    """Tools that a model was offered, as they were recorded."""

    digest: str
    definitions: tuple[llm_pb2.ToolDefinition, ...]
    offered: dict[str, OfferedTool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """How and why the run is about to end."""

    outcome: int
    failure: failure_pb2.Failure
    grace_at: Instant
    #: The node whose end stops the run; "" for a cancel or a limit.
    node_id: str = ""

    @property
    def reason(self) -> str:
        """Why whatever else is under way is stopped."""
        return f"collateral of {self.node_id}" if self.node_id else self.failure.message


@dataclass(slots=True)
class Tokens:
    """Tokens used so far."""

    input: int = 0
    output: int = 0
    cached_input: int = 0
    reasoning: int = 0

    def add(self, usage: llm_pb2.Usage) -> None:
        """Count what a result or failure report states."""
        self.input += usage.input_tokens
        self.output += usage.output_tokens
        self.cached_input += usage.cached_input_tokens
        self.reasoning += usage.reasoning_tokens

    def to_message(self) -> llm_pb2.Usage:
        """Return them as they are told."""
        return llm_pb2.Usage(
            input_tokens=self.input,
            output_tokens=self.output,
            cached_input_tokens=self.cached_input,
            reasoning_tokens=self.reasoning,
        )

    @property
    def used(self) -> int:
        """What counts against a token limit."""
        return self.input + self.output


@dataclass(slots=True)
class Plan:
    """The next superstep."""

    #: What runs, with what it is entered with, in node-id order.
    frontier: tuple[tuple[CompiledNode, Carried], ...]
    #: What has arrived at joins that go on waiting.
    arrivals: dict[str, dict[str, Carried]]
    #: Nodes that a terminal node beside them keeps from running, and joins that it leaves waiting.
    displaced: tuple[CompiledNode, ...]
    #: Bits of the nodes that can still be entered, those of the frontier included.
    possible: int


@dataclass(slots=True, kw_only=True)
class RunState:
    """What the events of a run add up to."""

    run_id: str
    graph: CompiledGraph
    status: int = run_pb2.RUN_STATUS_RUNNING
    #: Nothing follows any more. Kept beside the status, because it is asked a dozen times per node.
    final: bool = False
    sequence: int = 0
    rules_version: int = RULES_VERSION
    selector: tuple[tuple[str, str], ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    root_run_id: str = ""
    #: The task that it performs, and of which run; None for a root.
    parent: run_pb2.RunParent | None = None
    #: How many runs are above it.
    depth: int = 0
    #: What references to graphs stand for in it and below it.
    resolved: dict[str, run_pb2.GraphVersion] = field(default_factory=dict)
    traceparent: str = ""
    tracestate: str = ""
    max_iterations: int = 0
    #: Supersteps of the prefix, if the run is a fork.
    forked_at_iteration: int = 0
    token_limit: int = 0
    time_limit_at: Instant | None = None
    #: When its first superstep may start; None: at once.
    starts_at: Instant | None = None
    #: Nothing starts until it is unpaused.
    paused: bool = False
    #: It is paused because its parent is.
    paused_by_parent: bool = False
    started_at: Instant
    #: When the last event happened, or the one that is being applied.
    updated_at: Instant
    ended_at: Instant | None = None
    graph_version: run_pb2.GraphVersion | None = None
    # The shared part.
    conversation: Conversation = field(default_factory=Conversation)
    variables: dict[str, value_pb2.Value] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    interrupt_points: list[str] = field(default_factory=list)
    terminate: bool = False
    iterations: int = 0
    tokens: Tokens = field(default_factory=Tokens)
    # The walk.
    activations: dict[str, Activation] = field(default_factory=dict)
    #: Spawned work that has begun and not ended, by id.
    spawned: dict[str, Activation] = field(default_factory=dict)
    #: The carried part of the last node, in node-id order, of the last superstep.
    carried: Carried = field(default_factory=Carried)
    traversals: dict[str, int] = field(default_factory=dict)
    #: What has arrived at joins that wait: by join, then by source.
    arrivals: dict[str, dict[str, Carried]] = field(default_factory=dict)
    #: Bits of the nodes that were entered, and of those that can still be.
    entered: int = 0
    possible: int = 0
    #: Tokens that were left when the superstep started; None without a limit.
    budget_at_start: int | None = None
    # What is outstanding.
    tasks: dict[str, Task] = field(default_factory=dict)
    #: How many of the tasks are sleeps, are performed by child runs, and by child runs that wait for people.
    sleeping: int = 0
    children: int = 0
    waiting_children: int = 0
    #: How many of the tasks wait for a person's approval.
    asking: int = 0
    questions: dict[str, Question] = field(default_factory=dict)
    open_questions: int = 0
    #: Signals that came and that nobody has taken, in order.
    signals: list[KeptSignal] = field(default_factory=list)
    #: Tokens of other systems that open questions wait for.
    external_tokens: set[str] = field(default_factory=set)
    due: DueTimes = field(default_factory=DueTimes)
    stopping: Stopping | None = None
    # What was recorded.
    tool_sets: dict[str, ToolSet] = field(default_factory=dict)
    remembered: OrderedDict[str, tuple[int, task_pb2.TaskResult]] = field(
        default_factory=OrderedDict
    )
    journal_bytes: int = 0
    limits_neared: set[str] = field(default_factory=set)
    result: state_pb2.GraphExecutionResult | None = None
    failure: failure_pb2.Failure | None = None
    #: Transient: what runs next, between being planned and being recorded.
    plan: Plan | None = None
    #: Transient: tasks between being placed and being recorded.
    drafts: dict[str, Task] = field(default_factory=dict)
    #: Transient: requests of models, by what they were made of.
    caches: dict[object, object] = field(default_factory=dict)
    #: Transient: graphs that a fork may go on by, by digest. Whoever folds puts them there.
    graphs: dict[str, CompiledGraph] = field(default_factory=dict)
    #: Transient: the graph that its first events are walked by; another than `graph` only in a fork.
    first_graph: CompiledGraph | None = None

    def finish(self, status: run_pb2.RunStatus.ValueType) -> None:
        """Become COMPLETED, FAILED or CANCELLED."""
        self.status = status
        self.final = True

    @property
    def is_pending(self) -> bool:
        """Whether it has a start delay, and nothing of it has started."""
        return self.starts_at is not None and self.iterations == 0 and not self.final

    @property
    def budget_remaining(self) -> int | None:
        """Tokens that may still be used; None without a limit."""
        return None if self.token_limit == 0 else max(0, self.token_limit - self.tokens.used)


def carry(carried: Carried, **changes: object) -> Carried:
    """Return `carried` with some parts replaced."""
    return replace(carried, **changes)  # type: ignore[arg-type]  # keyword names are checked at run time by replace
