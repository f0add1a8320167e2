"""What the server's own actions answer a poll with.

Rules: an action is a small step program. It is polled with its turn and the results of the turn before, and answers with
one of the steps below; it never changes the state, schedules nothing and knows no executor. The driver (`core/steps.py`)
understands these steps only, whoever gave them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from stepgraph_server.core.done import Done
from stepgraph_server.core.policies import NO_LIMIT

if TYPE_CHECKING:
    from stepgraph.v1 import failure_pb2, graph_pb2, run_pb2, task_pb2, transition_pb2
    from stepgraph_server.core.inputs import World
    from stepgraph_server.core.instants import Instant, Span
    from stepgraph_server.core.state import Activation, RunState, ToolSet
    from stepgraph_server.core.view import View


#: What one template may give, as large as an inline value may be.
MAX_RENDERED_BYTES: Final = 256 * 1024


class Prepared(Protocol):
    """The input of a task, as far as it was made when the task was scheduled."""

    def build(self, state: RunState) -> bytes:
        """Return the serialized TaskInput. The state is the one in which the task is outstanding."""
        ...


@dataclass(slots=True, kw_only=True)
class Effect:
    """Work for an executor."""

    key: tuple[str, ...]
    label: str
    prepared: Prepared
    call_id: str = ""
    message_count: int = 0
    prompt_digest: str = ""
    #: Tools that a model is offered; None if it is not offered any.
    tools: ToolSet | None = None
    #: It uses tokens, so it does not start without a budget.
    spends_tokens: bool = False
    #: It shows progress, so it has an idle limit; None if the node says that.
    streaming: bool | None = None
    #: Tries, limits and labels of its own; None if the node's are.
    options: transition_pb2.EffectOptions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Work that the server answers itself, such as a call of a tool that does not exist."""

    label: str
    call_id: str
    result: task_pb2.TaskResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Time that has to pass: until a point in time, or for a span from when it begins."""

    label: str
    until: Instant | None = None
    span: Span = NO_LIMIT


@dataclass(slots=True, kw_only=True)
class Child:
    """A child run."""

    label: str
    graph: graph_pb2.GraphRef
    #: What it starts with.
    input: run_pb2.RunInput
    #: How long it may take; None is as long as its parent.
    time_limit: Span | None = None
    #: The most supersteps; 0 is as its graph says.
    max_iterations: int = 0
    call_id: str = ""
    #: Labels of its executors, beside those of its node; the rest is nothing that a run has.
    options: transition_pb2.EffectOptions | None = None

    def build(self, _: RunState) -> bytes:
        """Return what it starts with: no executor gets it, but like any task it must have the same after a restart."""
        return self.input.SerializeToString(deterministic=True)


@dataclass(slots=True)
class Await:
    """Run effects; poll again when all have ended."""

    effects: tuple[Effect | Answered | Pause | Child, ...]
    #: How many at once; 0 means all.
    max_concurrency: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend:
    """Wait for something that no executor does; poll again with its answer."""

    wanted: transition_pb2.Transition.Suspend


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """End the node with a failure."""

    failure: failure_pb2.Failure


Step: TypeAlias = Await | Suspend | Done | Fail

Result: TypeAlias = "task_pb2.TaskResult | failure_pb2.Failure"


@dataclass(slots=True)
class Poll:
    """What an action sees when it is polled."""

    state: RunState
    activation: Activation
    view: View
    #: From 0.
    turn: int
    #: What came of the last turn's effects, in order; empty on turn 0.
    results: tuple[Result, ...]
    world: World | None
    """What is on offer now; None when a turn is folded again, where everything needed was recorded."""


__all__ = [
    "Answered",
    "Await",
    "Child",
    "Done",
    "Effect",
    "Fail",
    "Pause",
    "Poll",
    "Prepared",
    "Result",
    "Step",
    "Suspend",
]
