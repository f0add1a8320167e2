"""Inputs of outstanding tasks, and what an action is polled with.

Rules: an input is never stored. It is made when its task is scheduled, and made again from the folded state whenever it is asked for and
was lost with a restart; both give the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import edge_condition_pb2, task_pb2
from stepgraph_server.core.actions import poll_action
from stepgraph_server.core.actions.inputs import NO_INPUT, condition_input, tool_input
from stepgraph_server.core.actions.step import Await, Child, Effect, Fail, Poll, Step
from stepgraph_server.core.state import TaskStatus
from stepgraph_server.core.step_context import PollInput
from stepgraph_server.core.step_effects import child_of, effect_of
from stepgraph_server.core.view import View

if TYPE_CHECKING:
    from stepgraph_server.core.actions.step import Prepared
    from stepgraph_server.core.state import Activation, RunState, Task
    from stepgraph_server.core.turn import Turn


class NotPrepared(Exception):
    """The input of a task can't be made again: its action does not ask for it any more. Only a fork with changes can do that."""


def poll_of(state: RunState, activation: Activation, number: int, turn: Turn | None) -> Poll:
    """Return what an action sees at its turn `number`. Without a `turn` it is polled by a fold, where all was recorded."""
    results = tuple([each for each in activation.results if each is not None]) if number else ()
    work, world = (None, None) if turn is None else (turn.work, turn.world)
    view = View(state, activation.carried, activation.delta, work)
    return Poll(state, activation, view, number, results, world)  # type: ignore[arg-type]  # who has not suspended gets no answers


def prepare(state: RunState, task: Task) -> Prepared:
    """Return the input of an outstanding task, made again if it was lost with a restart. Raises NotPrepared."""
    if task.prepared is None:
        task.prepared = made = _made_again(state, task)
        if task.args is not None:
            task.prepared = _with_args(made.build(state), task.args)
    return task.prepared  # type: ignore[return-value]  # state.py does not know the actions


def _with_args(data: bytes, args: str) -> Prepared:
    """Return the input of a tool with the arguments that a person has put in place of its own."""
    tool = task_pb2.TaskInput.FromString(data).tool
    return tool_input(tool.name, args, tool.call_id)


def _made_again(state: RunState, task: Task) -> Prepared:
    activation = task.activation
    if task.edge_id:
        condition = state.graph.edges_by_id[task.edge_id].condition
        assert isinstance(condition, edge_condition_pb2.EdgeCondition.Custom)
        # The view of a node that has ended well does not change any more.
        return condition_input(condition, View(state, activation.carried, activation.delta))
    if task.status is TaskStatus.SLEEPING:
        return NO_INPUT
    if task.poll:
        return PollInput(task)
    if activation.program is not None:
        opened = activation.program.open[task.turn, task.index]
        if task.status is TaskStatus.CHILD:
            return child_of(state, opened.effect)
        return effect_of(state, activation, opened).prepared
    step: Step = poll_action(poll_of(state, activation, activation.turn, None))
    if isinstance(step, Fail):
        raise NotPrepared(step.failure.message)
    if not isinstance(step, Await) or task.index >= len(step.effects):
        message = f"{activation.node.id} does not ask for it any more"
        raise NotPrepared(message)
    effect = step.effects[task.index]
    if not isinstance(effect, Effect | Child):
        message = f"{activation.node.id} has an answer to it already"
        raise NotPrepared(message)
    return effect if isinstance(effect, Child) else effect.prepared


__all__ = ["NotPrepared", "poll_of", "prepare"]
