"""For all graphs, executors, people and orders: a run ends or waits for something named, and the order does not matter.

Every step is decided twice, by the state held and by one that is folded from the journal, and every invariant is checked
after it; see tests/support/core_run.py.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from stepgraph.v1 import event_pb2, executor_service_pb2, interrupt_pb2, run_pb2
from stepgraph_server.core.inputs import (
    Answer,
    AttemptRef,
    AttemptsLost,
    Cancel,
    GoOn,
    Outcomes,
    RoomFound,
    RunLimits,
    Start,
    TimePassed,
)
from stepgraph_server.core.invariants import outstanding
from stepgraph_server.core.run import fold, next_due
from stepgraph_server.core.state import RULES_VERSION, TaskStatus
from tests.support.core_graphs import graphs
from tests.support.core_run import RUN_ID, PlayedRun
from tests.support.core_world import PlayedExecutor, PlayedWorld

if TYPE_CHECKING:
    from stepgraph_server.core.graph import CompiledGraph
    from stepgraph_server.core.state import RunState, Task

# A run of at most 12 supersteps of at most 7 nodes can't take more steps than this.
MAX_STEPS = 600
SEEDS = st.integers(0, 2**32)


class Player:
    """Executors and people whose behaviour depends on what they are asked, never on when."""

    def __init__(
        self,
        graph: CompiledGraph,
        seed: int,
        order: int,
        *,
        room: int,
        faulty: bool = True,
        limits: RunLimits | None = None,
    ) -> None:
        world = PlayedWorld(limits=limits or RunLimits())
        world.join(PlayedExecutor(id="e1", instance="i1", room=room))
        self.run = PlayedRun(graph, world)
        self._seed = seed
        self._order = random.Random(order)
        self._faulty = faulty

    def play(self) -> RunState:
        """Play the run to its end."""
        started = event_pb2.RunStarted(
            run_id=RUN_ID, rules_version=RULES_VERSION, max_iterations=self.run.graph.max_iterations
        )
        self.run.happen(Start(started=started))
        for _ in range(MAX_STEPS):
            if self.run.state.final:
                return self.run.state
            self._step()
        message = f"it does not end: {outstanding(self.run.state)}"
        raise AssertionError(message)

    def _step(self) -> None:
        state = self.run.state
        live = [task for task in state.tasks.values() if task.status is TaskStatus.ASSIGNED]
        asked = [name for name, question in state.questions.items() if question.open]
        goes_on: list[object] = [GoOn()] if self.run.has_yielded else []
        choices: list[object] = [*live, *asked, *goes_on]
        if choices:
            chosen = self._order.choice(choices)
            if isinstance(chosen, GoOn):
                self.run.happen(chosen)
            elif isinstance(chosen, str):
                self._answer(chosen)
            else:
                self._report(chosen)  # type: ignore[arg-type]
        elif self.run.waiting and self.run.world.executors["e1"].room > 0:
            waiting, self.run.waiting = tuple(self.run.waiting), []
            self.run.happen(RoomFound(task_ids=waiting))
        else:
            due = next_due(state)
            assert due is not None, f"it waits for nothing: {outstanding(state)}"
            self.run.now = max(self.run.now, due)
            self.run.happen(TimePassed())

    def _dice(self, name: str) -> random.Random:
        return random.Random(f"{self._seed}/{name}")

    def _report(self, task: Task) -> None:
        dice = self._dice(f"{task.id}#{task.tries}.{task.losses}")
        fate = dice.random() if self._faulty else 1.0
        if fate < 0.1:
            ref = AttemptRef(task_id=task.id, attempt=task.attempt)
            reason = event_pb2.TASK_LOSS_REASON_DISCONNECTED
            self.run.happen(AttemptsLost(attempts=(ref,), reason=reason))
            return
        outcome = executor_service_pb2.AttemptOutcome(
            task_id=f"{RUN_ID}/{task.id}", attempt=task.attempt
        )
        if fate < 0.3:
            outcome.failed.failure.code = "BROKEN"
        elif task.edge_id:
            outcome.succeeded.condition.holds = dice.random() < 0.5
        else:
            outcome.succeeded.tool.output.text = f"{task.id}!"
            outcome.succeeded.tool.is_error = dice.random() < 0.2
        self.run.happen(Outcomes(instance="i1", outcomes=((task.id, outcome),)))

    def _answer(self, interrupt_id: str) -> None:
        activation_id = self.run.state.questions[interrupt_id].interrupt.activation_id
        answer = interrupt_pb2.InterruptAnswer()
        if self._dice(activation_id).random() < 0.15:
            answer.abort.reason = "no"
        else:
            answer.proceed.SetInParent()
        self.run.happen(Answer(interrupt_id=interrupt_id, answer=answer, answered_by="anna"))


def result_of(state: RunState) -> object:
    """Return what a run left, without what only says when."""
    return (
        state.status,
        state.variables,
        [entry.data for entry in state.conversation.entries],
        state.carried,
        state.iterations,
        state.traversals,
        state.entered,
        state.failure,
    )


@given(graphs(), SEEDS, st.integers(1, 3))
def test_a_run_ends_whatever_executors_and_people_do(
    graph: CompiledGraph, seed: int, room: int
) -> None:
    Player(graph, seed, seed, room=room).play()


@given(graphs(), SEEDS, SEEDS, SEEDS)
def test_the_order_in_which_nodes_end_does_not_matter(
    graph: CompiledGraph, seed: int, one: int, other: int
) -> None:
    """I9, where nothing ends the run at once: there the first cause decides, and who is first is the order."""
    first = Player(graph, seed, one, room=9, faulty=False).play()
    second = Player(graph, seed, other, room=1, faulty=False).play()
    assert (first.status == run_pb2.RUN_STATUS_COMPLETED) == (
        second.status == run_pb2.RUN_STATUS_COMPLETED
    )
    if first.status == run_pb2.RUN_STATUS_COMPLETED:
        assert result_of(first) == result_of(second)


@given(graphs(), SEEDS, SEEDS, st.sampled_from(["work", "bytes"]))
def test_where_decisions_yield_does_not_matter(
    graph: CompiledGraph, seed: int, order: int, what: str
) -> None:
    """Whatever happens between two turns of a run: results, answers, a restart."""
    limits = RunLimits(**{f"max_{what}_per_decision": 1 if what == "work" else 1_000})
    first = Player(graph, seed, order, room=9, faulty=False).play()
    second = Player(graph, seed, order, room=9, faulty=False, limits=limits).play()
    assert (first.status == run_pb2.RUN_STATUS_COMPLETED) == (
        second.status == run_pb2.RUN_STATUS_COMPLETED
    )
    if first.status == run_pb2.RUN_STATUS_COMPLETED:
        assert result_of(first) == result_of(second)


@given(graphs(), SEEDS, st.integers(1, 40))
@settings(max_examples=50)
def test_a_cancelled_run_ends_whenever_it_is_cancelled(
    graph: CompiledGraph, seed: int, steps: int
) -> None:
    player = Player(graph, seed, seed, room=2)
    started = event_pb2.RunStarted(run_id=RUN_ID, rules_version=RULES_VERSION, max_iterations=12)
    player.run.happen(Start(started=started))
    for _ in range(steps):
        if player.run.state.final:
            return
        player._step()
    if player.run.state.final:
        return
    player.run.happen(Cancel(reason="enough"))
    player.run.now += player.run.world.limits.cancel_grace
    player.run.happen(TimePassed())
    assert player.run.state.final


@given(graphs(), SEEDS)
@settings(max_examples=50)
def test_every_prefix_that_ends_a_decision_folds_and_goes_on(
    graph: CompiledGraph, seed: int
) -> None:
    """A restart after any step, with all notes lost, decides nothing by itself: what was decided stays decided."""
    player = Player(graph, seed, seed, room=2)
    started = event_pb2.RunStarted(run_id=RUN_ID, rules_version=RULES_VERSION, max_iterations=12)
    player.run.happen(Start(started=started))
    while not player.run.state.final:
        player.run.restart()
        assert not player.run.happen(GoOn()).events
        player._step()
    assert fold(RUN_ID, graph, player.run.events).status == player.run.state.status
