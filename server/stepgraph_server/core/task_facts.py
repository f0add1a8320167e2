"""What the facts about tasks change in the folded state.

Rules: everything here follows from the event and the state before it; `core/tasks.py` decides which facts there are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepgraph.v1 import failure_pb2
from stepgraph_server.core import tool_approvals
from stepgraph_server.core.decisions import OfferedTool
from stepgraph_server.core.instants import from_timestamp
from stepgraph_server.core.requirements import requirement_key
from stepgraph_server.core.scheduling import (
    CHILD_KEY,
    SLEEP_KEY,
    apply_options,
    mark_child,
    mark_poll,
    mark_sleep,
    new_task,
    take_approval,
)
from stepgraph_server.core.spawn import Spawn
from stepgraph_server.core.spawning import enter, locate
from stepgraph_server.core.state import (
    MAX_REMEMBERED_TASKS,
    Activation,
    RunState,
    Task,
    TaskStatus,
    ToolSet,
)
from stepgraph_server.core.step_program import StepProgram
from stepgraph_server.core.tasks import arm
from stepgraph_server.core.view import updated

if TYPE_CHECKING:
    from stepgraph.v1 import event_pb2, llm_pb2, task_pb2, transition_pb2
    from stepgraph_server.core.instants import Instant

    Result = task_pb2.TaskResult | failure_pb2.Failure


def _locate(state: RunState, task_id: str) -> tuple[Activation, str, str]:
    """Split a task id `<activation>/t<turn>/e<index>` or `<activation>/c/<edge>`; raises KeyError for an unknown one."""
    activation_id, middle, last = task_id.rsplit("/", 2)
    return locate(state, activation_id), middle, last


def _make_room(activation: Activation, turn: int, index: int) -> None:
    """Make room for the result of an effect at its position in its turn."""
    if turn > activation.turn:
        activation.turn = turn
        activation.results = []
        activation.call_ids = []
        activation.outstanding = 0
    missing = index + 1 - len(activation.results)
    if missing > 0:
        activation.results += [None] * missing
        activation.call_ids += [""] * missing


def apply_tools_offered(state: RunState, event: event_pb2.RunEvent) -> None:
    """Keep the set of tools under its digest."""
    fact = event.tools_offered
    definitions = tuple(fact.tools)
    offered = {
        definition.name: OfferedTool(
            name=definition.name, digest=digest, input_schema=definition.input_schema
        )
        for definition, digest in zip(definitions, fact.tool_digests, strict=True)
    }
    for name in fact.approval_tools:
        offered[name] = replace(offered[name], requires_approval=True)
    state.tool_sets[fact.digest] = ToolSet(
        digest=fact.digest, definitions=definitions, offered=offered
    )


def apply_task_scheduled(state: RunState, event: event_pb2.RunEvent) -> None:
    """The task is outstanding."""
    fact = event.task_scheduled
    now = state.updated_at
    task = state.drafts.pop(fact.task_id, None)
    if task is None:
        task = _replayed_task(state, fact, now)
    activation = task.activation
    if activation.parent is not None:
        enter(state, activation)
        _count(activation.parent, 1)
    if task.edge_id:
        activation.conditions[task.edge_id] = None
    elif task.poll or activation.program is not None:
        _schedule_for_program(activation, task, fact)
    else:
        _make_room(activation, task.turn, task.index)
        activation.call_ids[task.index] = task.call_id
        if fact.tools_digest:
            activation.tools_digest = fact.tools_digest
        if activation.is_full and task.status is not TaskStatus.CHILD:
            task.held = True
            activation.held.append(task)
    activation.outstanding += 1
    state.tasks[task.id] = task
    _count_kind(state, task, 1)
    if fact.HasField("assignment"):
        _assign(task, fact.assignment, now)
    arm(state, task)


def _schedule_for_program(
    activation: Activation, task: Task, fact: event_pb2.TaskScheduled
) -> None:
    if task.poll:
        if activation.program is None:
            activation.program = StepProgram()
        activation.program.poll()
        activation.turn = task.turn
        activation.spawn = None
        return
    assert activation.program is not None
    activation.program.started = task.index + 1
    if fact.tools_digest:
        activation.tools_digest = fact.tools_digest


def _count_kind(state: RunState, task: Task, tasks: int) -> None:
    """Count tasks that no executor performs, as they become outstanding or end."""
    if task.status is TaskStatus.SLEEPING:
        state.sleeping += tasks
    elif task.status is TaskStatus.CHILD:
        state.children += tasks
        task.activation.placeless += tasks
        if task.child_waits:
            state.waiting_children += tasks


def _count(activation: Activation | None, tasks: int) -> None:
    """Count tasks that became outstanding, or ended, at an activation and at all that it was spawned by."""
    while activation is not None:
        activation.outstanding += tasks
        activation = activation.parent


def _replayed_task(state: RunState, fact: event_pb2.TaskScheduled, now: Instant) -> Task:
    activation, middle, last = _locate(state, fact.task_id)
    task = new_task(state, activation, task_id=fact.task_id, now=now, key=_key_of(fact))
    task.label = fact.label
    task.call_id = fact.call_id
    if middle == "c":
        task.edge_id = last
        return task
    task.turn = int(middle[1:])
    if last == "poll":
        mark_poll(task)
        return task
    task.index = int(last[1:])
    if fact.HasField("due_time"):
        mark_sleep(task, from_timestamp(fact.due_time))
        return task
    if fact.child_run_id:
        mark_child(task)
    if activation.program is not None:
        _set_apart(activation.program, task)
    take_approval(state, task)
    return task


def _key_of(fact: event_pb2.TaskScheduled) -> tuple[str, ...]:
    if fact.HasField("due_time"):
        return SLEEP_KEY
    return CHILD_KEY if fact.child_run_id else requirement_key(fact.requirement)


def _set_apart(program: StepProgram, task: Task) -> None:
    """Give a task what its effect says of itself."""
    effect = program.open[task.turn, task.index].effect
    if effect.HasField("options"):
        apply_options(task, effect.options)
    task.streaming = effect.llm.request.streaming


def _assign(task: Task, assignment: task_pb2.TaskAssignment, now: Instant) -> None:
    task.status = TaskStatus.ASSIGNED
    task.attempt = assignment.attempt
    task.executor_id = assignment.executor_id
    task.instance = assignment.instance
    task.assigned_at = now
    task.retry_at = None
    task.accepted = False
    task.progress_at = None
    task.unclaimed = False
    task.waits = False


def apply_task_assigned(state: RunState, event: event_pb2.RunEvent) -> None:
    """An executor has the task."""
    task = state.tasks[event.task_assigned.task_id]
    _assign(task, event.task_assigned.assignment, state.updated_at)
    arm(state, task)


def apply_task_unclaimed(state: RunState, event: event_pb2.RunEvent) -> None:
    """It was said that no executor can take the task."""
    state.tasks[event.task_unclaimed.task_id].unclaimed = True


def apply_task_completed(state: RunState, event: event_pb2.RunEvent) -> None:
    """The task has its result."""
    fact = event.task_completed
    attempt, task_id, result = fact.attempt, fact.task_id, fact.result
    if attempt == 0:
        _complete_without_attempt(state, fact)
        return
    kind = result.WhichOneof("kind")
    if kind == "llm" and result.llm.HasField("usage"):
        _spend(state, state.tasks[task_id], result.llm.usage)
    elif kind == "agent":
        _spend(state, state.tasks[task_id], result.agent.usage)
    _end(state, state.tasks[task_id], result)
    state.remembered[task_id] = (attempt, result)
    if len(state.remembered) > MAX_REMEMBERED_TASKS:
        state.remembered.popitem(last=False)


def _spend(state: RunState, task: Task, usage: llm_pb2.Usage) -> None:
    """Count what a task cost, in the run and in the node that it belongs to."""
    before = state.tokens.used
    state.tokens.add(usage)
    task.activation.root.spent += state.tokens.used - before


def _complete_without_attempt(state: RunState, fact: event_pb2.TaskCompleted) -> None:
    """No executor worked: a sleep or a child run is over, a person refused, a fork was given the result, a call can't run, a Map begins."""
    task = state.tasks.get(fact.task_id)
    if task is not None:
        _spend(state, task, fact.result.graph.usage)
        _end(state, task, fact.result)
        return
    activation, middle, last = _locate(state, fact.task_id)
    if last == "poll":
        _answer_itself(state, activation, fact.result.step)
        return
    index = int(last[1:])
    _make_room(activation, int(middle[1:]), index)
    activation.call_ids[index] = fact.call_id
    activation.results[index] = fact.result


def _answer_itself(
    state: RunState, activation: Activation, reply: transition_pb2.StepReply
) -> None:
    """The server answered for a node what a step program would have: what to spawn."""
    program = activation.program = StepProgram()
    program.poll()
    program.answer(reply, state.updated_at, 0)
    activation.turn = program.turn
    activation.spawn = Spawn.of(program.turn, reply.transition.spawn)


def apply_task_failed(state: RunState, event: event_pb2.RunEvent) -> None:
    """An attempt failed; the task waits for its next try, or has failed for good."""
    fact = event.task_failed
    task = state.tasks[fact.task_id]
    _spend(state, task, fact.usage)
    if task.poll:
        _forget_holder(task)
    if fact.HasField("retry_time"):
        task.status = TaskStatus.BACKOFF
        task.tries = fact.tries
        task.losses = 0
        task.retry_at = from_timestamp(fact.retry_time)
        # Should it have to wait for an executor then, its queue limit counts from then.
        task.queued_at = max(task.retry_at, state.updated_at)
        task.last_failure = fact.failure
        arm(state, task)
    else:
        _end(state, task, fact.failure)


def apply_task_lost(state: RunState, event: event_pb2.RunEvent) -> None:
    """An attempt ended without having been a try; the task waits for an executor."""
    task = state.tasks[event.task_lost.task_id]
    task.losses += 1
    if task.poll:
        _forget_holder(task)
    task.status = TaskStatus.QUEUED
    task.queued_at = state.updated_at
    arm(state, task)


def apply_task_cancelled(state: RunState, event: event_pb2.RunEvent) -> None:
    """The task is over."""
    fact = event.task_cancelled
    task = state.tasks.pop(fact.task_id)
    _spend(state, task, fact.usage)
    _leave_counts(state, task)
    _count(task.activation, -1)


def _forget_holder(task: Task) -> None:
    """Whoever had the attempt of a poll may have forgotten the turns before."""
    task.prefers = ""
    if task.activation.program is not None:
        task.activation.program.forget_holder()


def _leave_counts(state: RunState, task: Task) -> None:
    """Count the task no more among those that no executor performs, or that wait for a person."""
    _count_kind(state, task, -1)
    tool_approvals.leave(state, task)


def _end(state: RunState, task: Task, result: Result) -> None:
    del state.tasks[task.id]
    activation = task.activation
    had_place = task.status not in (TaskStatus.ASKING, TaskStatus.CHILD)
    _leave_counts(state, task)
    activation.outstanding -= 1
    if activation.parent is not None:
        _count(activation.parent, -1)
    if activation.held and had_place:
        # What is held back never ends before what holds it back: both were scheduled at once, with the same limits.
        released = activation.held.popleft()
        tool_approvals.release(state, released)
        arm(state, released)
    if not task.edge_id:
        if activation.program is not None:
            _end_for_program(state, activation.program, task, result)
        else:
            activation.results[task.index] = result
    elif isinstance(result, failure_pb2.Failure):
        activation.conditions[task.edge_id] = result
    else:
        activation.conditions[task.edge_id] = result.condition.holds


def _end_for_program(state: RunState, program: StepProgram, task: Task, result: Result) -> None:
    if not task.poll:
        program.end(task.turn, task.index, task.label, result)
    elif isinstance(result, failure_pb2.Failure):
        program.polling = False
        program.failure = result
    else:
        activation, reply = task.activation, result.step
        if reply.HasField("update"):
            activation.carried, activation.delta = updated(state, activation, reply.update)
        program.instance, program.holds = task.instance, reply.holds_turns
        program.answer(reply, state.updated_at, len(activation.delta.messages))
        if reply.transition.HasField("spawn"):
            activation.spawn = Spawn.of(program.turn, reply.transition.spawn)
