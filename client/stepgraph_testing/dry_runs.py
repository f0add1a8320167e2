"""A run without a server, an executor or a socket: the rules alone, with canned results.

    run = dry_run(graph, {"think": [calls(call("search", q="x")), "done"], "tool search": "found", "approve": proceed()})
    assert run.path == ["think", "act", "think", "approve", "deploy"]

Rules: results are found by the label of a task ("tool search", "llm m", "agent coder", "condition is_safe", "step p", "graph child"),
else by the node; answers by "question <node>", else by the node. A list is given one item after the other, a function is called with the
task's input, anything else is given every time. A child run is not played, but ends with its result, of which a mapping is its
variables, too.
Time passes only from one thing that is due to the next. What has no result stops the run with an error that names it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, Unpack, assert_never

from stepgraph.v1 import executor_service_pb2, interrupt_pb2, llm_pb2, run_pb2, task_pb2
from stepgraph_client import task_results
from stepgraph_client.graphs import Graph
from stepgraph_client.requests import RunOptions, start_request
from stepgraph_client.task_errors import Failed, ToolError, failure_outcome
from stepgraph_client.values import from_value, to_value
from stepgraph_server.core import inputs
from stepgraph_server.core.graph import compile_graph
from stepgraph_server.core.instants import SECOND, Instant, after
from stepgraph_server.core.policies import GraphDefaults
from stepgraph_server.core.preparing import prepare
from stepgraph_server.core.run import decide, new_state, next_due
from stepgraph_server.core.tasks import note_accepted
from stepgraph_server.engine.callers import Caller
from stepgraph_server.engine.creating import run_started
from stepgraph_server.engine.state_at import FoldedState
from stepgraph_testing.bench_run import Stuck
from stepgraph_testing.canned import (
    Canned,
    NoResult,
    asked_of,
    child_input,
    offers,
    result_of,
)
from stepgraph_testing.clock import micros
from stepgraph_testing.history import History
from stepgraph_testing.replies import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stepgraph.v1 import (
        conversation_pb2,
        event_pb2,
        failure_pb2,
        graph_pb2,
        run_service_pb2,
    )
    from stepgraph_server.core.inputs import (
        Command,
        Input,
        Placement,
        RunLimits,
        Selector,
        ToolOffer,
    )
    from stepgraph_server.core.state import RunState, Task
    from stepgraph_testing.history import Path, TaskSeen

#: So many things happen in a dry run at most; a graph that goes round for ever is stopped by its own caps long before.
MAX_INPUTS: Final = 100_000
#: 2026-01-01T00:00:00Z: a dry run is the same each time, its times included.
START: Final = Instant(1_767_225_600 * SECOND)

_RUN_ID: Final = "dry-run"
_EXECUTOR: Final = "dry-run"


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """A dry run that has ended.

    Attributes:
        history: All that happened.
        output: Its output, as Python has it.
        variables: The variables at the end, as Python has them.
        messages: The conversation at the end.
    """

    history: History
    output: object
    variables: Mapping[str, object]
    messages: tuple[conversation_pb2.Message, ...]

    @property
    def path(self) -> Path:
        """The nodes that ran, in order."""
        return self.history.path

    @property
    def tasks(self) -> tuple[TaskSeen, ...]:
        """The tasks, in the order in which they were scheduled."""
        return self.history.tasks

    @property
    def status(self) -> str:
        """How it ended: "completed", "failed" or "cancelled"."""
        return self.history.status

    @property
    def failure(self) -> failure_pb2.Failure | None:
        """Why it failed; None if it did not."""
        return self.history.failure

    def __repr__(self) -> str:
        return f"<dry run\n{self.history.story()}>"


def dry_run(
    graph: Graph | graph_pb2.StateGraph,
    results: Mapping[str, object],
    *,
    tools: Iterable[llm_pb2.ToolDefinition | Callable[..., object]] = (),
    **options: Unpack[RunOptions],
) -> DryRun:
    """Play a graph with canned results; see this module.

    Args:
        graph: The graph; it is checked as if it were registered.
        results: What tasks give, and how questions are answered, by label or node. Failures are raised: `Failed("CODE", "…")`.
        tools: What models are offered, beside the tools that `results` name.
        options: As `client.start_run` takes them.

    Raises:
        GraphInvalid: The graph is broken (the server's exception, with all problems).
        Stuck: It waits for something that has no result; the message names it, with what happened before.
    """
    definition = graph.build() if isinstance(graph, Graph) else graph
    given = to_value(options["input"]) if "input" in options else None
    variables = {name: to_value(value) for name, value in options.get("variables", {}).items()}
    play = _Play(definition, results, offers(results, tools))
    play.start(start_request(definition, options, given, variables))
    return play.ended()


class _World:
    """Executors that can do everything, and have room for it."""

    def __init__(self, offered: tuple[ToolOffer, ...]) -> None:
        self._offers: Final = offered
        self.limits: Final[RunLimits] = inputs.RunLimits()

    def place(self, task: Task) -> Placement | None:
        """Give every task to the one executor."""
        del task
        return inputs.Placement(executor_id=_EXECUTOR, instance=_EXECUTOR)

    def capable(self, task: Task) -> int:
        """Count that one."""
        del task
        return 1

    def tools(self, selector: Selector) -> tuple[ToolOffer, ...]:
        """Return what was named."""
        del selector
        return self._offers

    def requires_approval(self, task: Task) -> bool:
        """Leave that to the graph."""
        del task
        return False

    def jitter(self) -> float:
        """Return no chance at all."""
        return 0.0


class _Play:
    """One dry run under way."""

    def __init__(
        self,
        definition: graph_pb2.StateGraph,
        results: Mapping[str, object],
        offered: tuple[ToolOffer, ...],
    ) -> None:
        self._graph: Final = compile_graph(definition, GraphDefaults())
        self._canned: Final = Canned(results)
        self._world: Final = _World(offered)
        self._now = START
        self._state: RunState = new_state(_RUN_ID, self._graph, START)
        self._events: Final[list[event_pb2.RunEvent]] = []
        self._sent: Final[deque[inputs.Send | inputs.StartChild]] = deque()
        self._inputs = 0

    def start(self, request: run_service_pb2.StartRunRequest) -> None:
        """Begin, and play to the end."""
        version = run_pb2.GraphVersion(name=self._graph.name, version=1, digest=self._graph.digest)
        started = run_started(request, _RUN_ID, version, self._graph, Caller(), START)
        self._happen(inputs.Start(started=started))
        while not self._state.final:
            self._go_on()

    def ended(self) -> DryRun:
        """Return how it ended."""
        end = FoldedState(self._state)
        result = end.result()
        return DryRun(
            history=History(self._events),
            output=None if result is None else from_value(result.output),
            variables={name: from_value(value) for name, value in end.variables.items()},
            messages=tuple(end.messages),
        )

    def _go_on(self) -> None:
        if self._sent:
            sent = self._sent.popleft()
            if isinstance(sent, inputs.Send):
                self._perform(sent)
            else:
                self._end_child(sent)
            return
        open_questions = History(self._events).questions
        for question in open_questions:
            if self._answer(question):
                return
        due = next_due(self._state)
        if due is None or any(not each.HasField("deadline_time") for each in open_questions):
            self._stop("nothing in `results` helps")
        self._now = max(self._now, due)
        self._happen(inputs.TimePassed())

    def _answer(self, question: interrupt_pb2.Interrupt) -> bool:
        """Answer a question, if there is an answer for it."""
        node_id, own = question.node_id, f"question {question.node_id}"
        if own not in self._canned and node_id not in self._canned:
            return False
        answer = self._next(own, node_id, question)
        if not isinstance(answer, interrupt_pb2.InterruptAnswer):
            message = f"node {node_id} asks a question: give proceed(), abort(…) or reply(…) under {own!r}, not {answer!r}"
            raise TypeError(message)
        self._happen(
            inputs.Answer(interrupt_id=question.interrupt_id, answer=answer, answered_by="dry run")
        )
        return True

    def _happen(self, happened: Input) -> None:
        self._inputs += 1
        if self._inputs > MAX_INPUTS:
            self._stop(f"it goes round: {MAX_INPUTS} things have happened")
        decision = decide(self._state, happened, self._world, self._now)
        self._events.extend(decision.events)
        for command in decision.commands:
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        match command:
            case inputs.Send() | inputs.StartChild():
                self._sent.append(command)
            case inputs.Yield():
                self._happen(inputs.GoOn())
            case inputs.StopAttempt():
                outcome = executor_service_pb2.AttemptOutcome(
                    attempt=command.attempt,
                    cancelled=executor_service_pb2.AttemptOutcome.Cancelled(),
                )
                self._report(command.task_id, outcome)
            case inputs.Enqueue() | inputs.AttemptOver():
                pass  # there is room for everything, and nobody watches
            case inputs.TellChild() | inputs.TellParent():
                pass  # a child is over as soon as it is there, and the run has no parent
            case _:
                assert_never(command)

    def _report(self, task_id: str, outcome: executor_service_pb2.AttemptOutcome) -> None:
        outcome.task_id = f"{_RUN_ID}/{task_id}"
        self._happen(inputs.Outcomes(instance=_EXECUTOR, outcomes=((task_id, outcome),)))

    # ---- results ---------------------------------------------------------------------------------

    def _perform(self, sent: inputs.Send) -> None:
        task = self._state.tasks.get(sent.task.id)
        if task is None or task.attempt != sent.attempt:
            return  # it was cancelled before its turn came
        note_accepted(self._state, inputs.AttemptRef(task_id=task.id, attempt=sent.attempt))
        given = task_pb2.TaskInput.FromString(prepare(self._state, task).build(self._state))
        outcome = executor_service_pb2.AttemptOutcome(attempt=sent.attempt)
        try:
            said = self._said(task, asked_of(given))
            outcome.succeeded.CopyFrom(result_of(given, said))
        except Exception as error:  # as in an executor, what is raised is the task's failure
            if isinstance(error, Stuck):
                raise
            outcome.failed.CopyFrom(failure_outcome(error, _EXECUTOR))
        self._report(task.id, outcome)

    def _end_child(self, started: inputs.StartChild) -> None:
        task = self._state.tasks.get(started.task.id)
        if task is None:
            return  # nobody waits for it any more
        given = run_pb2.RunInput.FromString(prepare(self._state, task).build(self._state))
        failure, said = None, None
        try:
            said = self._said(task, child_input(given))
        except Failed as error:
            failure = failure_outcome(error, _EXECUTOR).failure
        variables = said if isinstance(said, Mapping) else {}
        end = inputs.ChildEnd(
            output=None if said is None else to_value(said),
            variables={str(name): to_value(value) for name, value in variables.items()},
            failure=failure,
            usage=llm_pb2.Usage(),
        )
        seen = inputs.ChildSeen(
            task_id=task.id,
            run_id=f"{_RUN_ID}/{task.id}",
            graph=run_pb2.GraphVersion(name=task.label.removeprefix("graph ")),
            status=run_pb2.RUN_STATUS_FAILED if failure else run_pb2.RUN_STATUS_COMPLETED,
            end=end,
        )
        self._happen(seen)

    def _said(self, task: Task, asked: object) -> object:
        said = self._next(task.label, task.activation.node.id, asked)
        while isinstance(said, Later):
            self._now = after(self._now, micros(said.how_long))
            self._happen(inputs.TimePassed())
            said = said.said
        if isinstance(said, ToolError) and task.key[0] == "tool":
            return task_results.tool_error(said).tool
        if isinstance(said, Exception):
            raise said
        return said

    def _next(self, label: str, node_id: str, asked: object) -> object:
        try:
            return self._canned.next(label, node_id, asked)
        except NoResult as missing:
            self._stop(str(missing))

    def _stop(self, why: str) -> NoReturn:
        message = f"the dry run won't go on: {why}\n{History(self._events).story()}"
        raise Stuck(message)
