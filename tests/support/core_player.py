"""A run that is played to its end: executors and people whose behaviour depends on what they are asked, never on when."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2, executor_service_pb2, interrupt_pb2
from stepgraph_server.core.inputs import (
    Answer,
    AttemptRef,
    AttemptsLost,
    GoOn,
    Outcomes,
    RoomFound,
    RunLimits,
    Start,
    TimePassed,
)
from stepgraph_server.core.invariants import outstanding
from stepgraph_server.core.run import next_due
from stepgraph_server.core.state import RULES_VERSION, TaskStatus
from tests.support.core_programs import reply_of
from tests.support.core_run import RUN_ID, PlayedRun
from tests.support.core_world import PlayedExecutor, PlayedWorld

if TYPE_CHECKING:
    from stepgraph.v1 import task_pb2
    from stepgraph_server.core.graph import CompiledGraph
    from stepgraph_server.core.instants import Instant
    from stepgraph_server.core.state import Question, RunState, Task

# A run of at most 12 supersteps of at most 7 nodes can't take more steps than this.
MAX_STEPS = 600
#: Tools that need approval in half of the runs.
SENSITIVE = frozenset({"t"})


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
        racing: bool = False,
        limits: RunLimits | None = None,
    ) -> None:
        world = PlayedWorld(limits=limits or RunLimits())
        world.join(PlayedExecutor(id="e1", instance="i1", room=room))
        if seed % 2:
            world.approvals = SENSITIVE
        self.run = PlayedRun(graph, world)
        self._seed = seed
        self._order = random.Random(order)
        self._faulty = faulty
        self._racing = racing

    def play(self) -> RunState:
        """Play the run to its end."""
        started = event_pb2.RunStarted(
            run_id=RUN_ID, rules_version=RULES_VERSION, max_iterations=self.run.graph.max_iterations
        )
        self.run.happen(Start(started=started))
        for _ in range(MAX_STEPS):
            if self.run.state.final:
                return self.run.state
            self.step()
        message = f"it does not end: {outstanding(self.run.state)}"
        raise AssertionError(message)

    def step(self) -> None:
        """Let one thing happen."""
        state = self.run.state
        live = [task for task in state.tasks.values() if task.status is TaskStatus.ASSIGNED]
        asked = [name for name, question in state.questions.items() if question.open]
        due = next_due(state)
        if self._racing and due is not None and self._order.random() < 0.1:
            # Before anybody does anything: limits and deadlines are over.
            self._let_time_pass(due)
            return
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
            assert due is not None, f"it waits for nothing: {outstanding(state)}"
            self._let_time_pass(due)

    def _let_time_pass(self, until: Instant) -> None:
        self.run.now = max(self.run.now, until)
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
        else:
            self._succeed(task, dice, outcome.succeeded)
        self.run.happen(Outcomes(instance="i1", outcomes=((task.id, outcome),)))

    def _succeed(self, task: Task, dice: random.Random, result: task_pb2.TaskResult) -> None:
        match task.key[0]:
            case "condition":
                result.condition.holds = dice.random() < 0.5
            case "step":
                result.step.CopyFrom(reply_of(task, dice, racing=self._racing))
            case "agent":
                result.agent.output.text = f"{task.id}!"
            case "effect":
                result.effect.output.text = f"{task.id}!"
            case _:
                result.tool.output.text = f"{task.id}!"
                result.tool.is_error = dice.random() < 0.2

    def _answer(self, interrupt_id: str) -> None:
        question = self.run.state.questions[interrupt_id]
        answer = self._answer_to(question)
        self.run.happen(Answer(interrupt_id=interrupt_id, answer=answer, answered_by="anna"))

    def _answer_to(self, question: Question) -> interrupt_pb2.InterruptAnswer:
        answer = interrupt_pb2.InterruptAnswer()
        if question.interrupt.task_id:
            return self._approval(question.interrupt, answer)
        # By its turn too: one activation may ask many times.
        dice = self._dice(
            f"{question.interrupt.activation_id}@{question.interrupt.reason.human.prompt}"
        )
        no = dice.random() < 0.15
        if question.suspends and no:
            answer.failed.failure.code = "NOBODY"
        elif question.suspends:
            answer.reply.value.text = "yes"
        elif no:
            answer.abort.reason = "no"
        else:
            answer.proceed.SetInParent()
        return answer

    def _approval(
        self, asked: interrupt_pb2.Interrupt, answer: interrupt_pb2.InterruptAnswer
    ) -> interrupt_pb2.InterruptAnswer:
        match self._dice(asked.task_id).randrange(4):
            case 0:
                answer.revise.feedback = "not so"
            case 1:
                answer.proceed_with.tool_args = '{"other": true}'
            case _:
                answer.proceed.SetInParent()
        return answer


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


__all__ = ["Player", "result_of"]
