"""Tasks: scheduled, assigned, tried, lost, ended.

Rules: a task is owned by its attempt, and only an event ends an attempt, never a clock reading. A result counts for the
current attempt of the instance that has it; everything else is stale and changes nothing. Lost and withdrawn attempts are
not tries, and have a cap of their own. Nothing here knows what a node does with a result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph.v1 import event_pb2, failure_pb2, task_pb2
from stepgraph_server.core.failures import failure
from stepgraph_server.core.inputs import AttemptOver, Enqueue, Send, StopAttempt
from stepgraph_server.core.instants import (
    MAX_INSTANT,
    Instant,
    Span,
    after,
    seconds_text,
    to_timestamp,
)
from stepgraph_server.core.requirements import both_selectors, requirement_message
from stepgraph_server.core.state import Activation, RunState, Task, TaskStatus, ToolSet

if TYPE_CHECKING:
    from stepgraph.v1 import llm_pb2
    from stepgraph_server.core.actions.step import Effect
    from stepgraph_server.core.inputs import AttemptRef, AttemptsLost
    from stepgraph_server.core.turn import Turn

#: Later than any time.
NEVER: Final = MAX_INSTANT + 1

#: Keys of DueTimes that stand for a task begin so.
DUE_PREFIX: Final = "task:"


# Scheduling


def schedule(turn: Turn, activation: Activation, effect: Effect, number: int, index: int) -> None:
    """Record a task for effect `index` of the activation's turn `number`, with its first assignment if there is room."""
    task_id = f"{activation.id}/t{number}/e{index}"
    task = new_task(turn.state, activation, task_id=task_id, now=turn.now, key=effect.key)
    task.turn = number
    task.index = index
    task.label = effect.label
    task.call_id = effect.call_id
    task.prepared = effect.prepared
    tools_digest = "" if effect.tools is None else _record_tools(turn, effect.tools)
    event = turn.next_event()
    fact = event.task_scheduled
    fact.task_id = task_id
    fact.label = effect.label
    if effect.call_id:
        fact.call_id = effect.call_id
    if effect.message_count:
        fact.message_count = effect.message_count
    if effect.prompt_digest:
        fact.prompt_digest = effect.prompt_digest
    if tools_digest:
        fact.tools_digest = tools_digest
    _record(turn, task, event, hold=activation.node.max_concurrency > 0 and is_held(activation))


def schedule_condition(turn: Turn, activation: Activation, edge_id: str, name: str) -> None:
    """Record a task that decides the custom condition of an edge."""
    task = new_task(
        turn.state,
        activation,
        task_id=f"{activation.id}/c/{edge_id}",
        now=turn.now,
        key=("condition", name),
    )
    task.edge_id = edge_id
    task.label = f"condition {name}"
    event = turn.next_event()
    event.task_scheduled.task_id = task.id
    event.task_scheduled.label = task.label
    _record(turn, task, event, hold=False)


def new_task(
    state: RunState, activation: Activation, *, task_id: str, now: Instant, key: tuple[str, ...]
) -> Task:
    """Build a task that waits, with what its node says of tries, limits and executors."""
    node = activation.node
    selector = both_selectors(state.selector, node.selector) if node.selector else state.selector
    # Only a model call shows progress, not a condition of the same node.
    streaming = node.streams and key[0] == "llm"
    requirement = requirement_message(key)
    return Task(
        task_id,
        activation,
        key,
        requirement,
        selector,
        node.retry,
        node.limits,
        streaming,
        now,
        now,
    )


def _record(turn: Turn, task: Task, event: event_pb2.RunEvent, *, hold: bool) -> None:
    fact = event.task_scheduled
    fact.requirement.CopyFrom(task.requirement)
    placement = None if hold else turn.world.place(task)
    if placement is not None:
        assignment = fact.assignment
        assignment.attempt = 1
        assignment.executor_id = placement.executor_id
        assignment.instance = placement.instance
    turn.state.drafts[task.id] = task
    turn.record(event)
    if placement is not None:
        _send(turn, task)
    elif not hold:
        _wait_for_room(turn, task)


def _record_tools(turn: Turn, tools: ToolSet) -> str:
    """Record a set of tools that this run has not offered yet; return its digest."""
    if tools.digest not in turn.state.tool_sets:
        turn.emit(
            "tools_offered",
            event_pb2.ToolsOffered(
                digest=tools.digest,
                tools=tools.definitions,
                tool_digests=[
                    tools.offered[definition.name].digest for definition in tools.definitions
                ],
            ),
        )
    return tools.digest


def is_held(activation: Activation) -> bool:
    """Whether one more task of the activation's turn has to wait until others have ended."""
    return 0 < activation.node.max_concurrency <= activation.outstanding


# Assigning


def assign(turn: Turn, task: Task) -> None:
    """Hand a waiting task to an executor that has room, or let it wait."""
    placement = turn.world.place(task)
    if placement is None:
        _wait_for_room(turn, task)
        return
    turn.emit(
        "task_assigned",
        event_pb2.TaskAssigned(
            task_id=task.id,
            assignment=task_pb2.TaskAssignment(
                attempt=task.attempt + 1,
                executor_id=placement.executor_id,
                instance=placement.instance,
            ),
        ),
    )
    _send(turn, task)


def _send(turn: Turn, task: Task) -> None:
    turn.command(Send(task, task.attempt, task.executor_id, task.instance))


def _wait_for_room(turn: Turn, task: Task) -> None:
    task.waits = True
    turn.command(Enqueue(task=task))
    if task.unclaimed or turn.world.capable(task):
        return
    limit = task.limits.queue
    turn.emit(
        "task_unclaimed",
        event_pb2.TaskUnclaimed(
            task_id=task.id,
            requirement=task.requirement,
            selector=dict(task.selector),
            queue_limit_time=to_timestamp(after(task.queued_at, limit)) if limit else None,
        ),
    )


# How tasks end


def end_cancelled(turn: Turn, task: Task, fact: event_pb2.TaskCancelled) -> None:
    """Record that a task was cancelled."""
    attempt = task.attempt if task.status is TaskStatus.ASSIGNED else 0
    turn.emit("task_cancelled", fact)
    if attempt:
        turn.command(
            AttemptOver(task_id=task.id, attempt=attempt, instance=task.instance, discarded=True)
        )


def fail_attempt(  # what is known of a failed attempt; all but the first three have defaults
    turn: Turn,
    task: Task,
    why: failure_pb2.Failure,
    *,
    usage: llm_pb2.Usage | None = None,
    retry_after: Span | None = None,
    for_good: bool = False,
) -> None:
    """Record that a task's attempt failed; it is tried again if its policy says so and the run goes on."""
    live = task.status is TaskStatus.ASSIGNED
    attempt, tries = (task.attempt, task.tries + 1) if live else (0, task.tries)
    event = turn.next_event()
    fact = event.task_failed
    fact.MergeFrom(event_pb2.TaskFailed(task_id=task.id, attempt=attempt, failure=why, tries=tries))
    if usage is not None and usage.ByteSize():
        fact.usage.CopyFrom(usage)
    again = not for_good and turn.state.stopping is None and live and task.retry.retries(why, tries)
    if again:
        delay = (
            task.retry.next_delay(tries, turn.world.jitter())
            if retry_after is None
            else retry_after
        )
        fact.retry_time.CopyFrom(to_timestamp(after(turn.now, delay)))
    if live:
        turn.command(
            AttemptOver(task_id=task.id, attempt=attempt, instance=task.instance, discarded=True)
        )
    if again:
        turn.record(event)
    else:
        end(turn, task, event)


def end(turn: Turn, task: Task, event: event_pb2.RunEvent) -> None:
    """Record how a task ended; the next that its cap held back takes its place."""
    held = task.activation.held
    following = held[0] if held else None
    turn.record(event)
    if turn.state.stopping is not None:
        return
    if following is not None and not following.held and following.id in turn.state.tasks:
        assign(turn, following)
    turn.agenda.append(task.activation)


# Attempts that were not tries


def on_lost(turn: Turn, lost: AttemptsLost) -> None:
    """Take back attempts that ended without having been tries, and hand their tasks out again."""
    for ref in lost.attempts:
        task = turn.state.tasks.get(ref.task_id)
        if task is not None and task.status is TaskStatus.ASSIGNED and task.attempt == ref.attempt:
            lose(turn, task, lost.reason, lost.message)


def lose(turn: Turn, task: Task, reason: event_pb2.TaskLossReason.ValueType, message: str) -> None:
    """Record that the task's attempt is lost; hand it out again, or fail it if that has happened too often."""
    attempt, executor_id = task.attempt, task.executor_id
    turn.emit(
        "task_lost",
        event_pb2.TaskLost(task_id=task.id, attempt=attempt, reason=reason, message=message),
    )
    turn.command(
        AttemptOver(task_id=task.id, attempt=attempt, instance=task.instance, discarded=True)
    )
    if turn.state.stopping is not None:
        end_cancelled(
            turn,
            task,
            event_pb2.TaskCancelled(task_id=task.id, reason=turn.state.stopping.reason),
        )
    elif task.losses >= turn.world.limits.max_losses:
        fail_attempt(
            turn,
            task,
            failure(
                "TASK_LOST",
                f"{task.losses} attempts were lost in a row, the last at executor {executor_id}; "
                "it may be what stops its executors",
                source=task.id,
                details={"losses": str(task.losses), "executor": executor_id},
            ),
            for_good=True,
        )
    else:
        assign(turn, task)


def on_room(turn: Turn, task_ids: tuple[str, ...]) -> None:
    """Try to hand out tasks that wait."""
    if turn.state.stopping is not None:
        return
    for task_id in task_ids:
        task = turn.state.tasks.get(task_id)
        if task is not None and _wants_executor(turn, task):
            assign(turn, task)


def _wants_executor(turn: Turn, task: Task) -> bool:
    match task.status:
        case TaskStatus.QUEUED:
            return not task.held
        case TaskStatus.BACKOFF:
            assert task.retry_at is not None
            return turn.now >= task.retry_at
        case TaskStatus.ASSIGNED:
            return False


def note_accepted(state: RunState, ref: AttemptRef) -> None:
    """Note that an executor has an attempt for sure. Not a fact: after a restart the session tells anew."""
    task = state.tasks.get(ref.task_id)
    if task is not None and task.attempt == ref.attempt:
        task.accepted = True


def note_progress(state: RunState, ref: AttemptRef, now: Instant) -> bool:
    """Note a sign of life of an attempt; return whether it is the current one."""
    task = state.tasks.get(ref.task_id)
    if task is None or task.attempt != ref.attempt or task.status is not TaskStatus.ASSIGNED:
        return False
    task.accepted = True
    task.progress_at = now
    return True


# Time


def due_at(task: Task) -> Instant | None:
    """Return when something about a task is due, or None."""
    limits = task.limits
    at: int = NEVER
    if limits.total:
        at = task.scheduled_at + limits.total
    if task.status is TaskStatus.ASSIGNED:
        at = _attempt_due_at(task, at)
    elif task.waits or (task.status is TaskStatus.QUEUED and not task.held):
        if limits.queue:
            at = min(at, task.queued_at + limits.queue)
    elif task.status is TaskStatus.BACKOFF:
        assert task.retry_at is not None
        at = min(at, task.retry_at)
    return None if at == NEVER else Instant(at)


def _attempt_due_at(task: Task, at: int) -> int:
    limits, start = task.limits, task.assigned_at
    assert start is not None
    if limits.run and start + limits.run < at:
        at = start + limits.run
    if limits.accept and not task.accepted and start + limits.accept < at:
        at = start + limits.accept
    if limits.idle and task.streaming:
        at = min(at, (task.progress_at or start) + limits.idle)
    return at


def on_due(turn: Turn, task: Task) -> None:
    """Do what is due about a task; look again later if nothing is."""
    now, limits = turn.now, task.limits
    if turn.state.stopping is not None:
        return
    if limits.total and now >= task.scheduled_at + limits.total:
        _over(turn, task, "TOTAL_LIMIT", limits.total, "the whole task", for_good=True)
    elif task.status is TaskStatus.ASSIGNED:
        _attempt_due(turn, task)
    elif limits.queue and not task.held and now >= task.queued_at + limits.queue:
        _over(turn, task, "QUEUE_LIMIT", limits.queue, "waiting for an executor", for_good=True)
    elif task.status is TaskStatus.BACKOFF and not task.waits and _wants_executor(turn, task):
        assign(turn, task)
    if task.id in turn.state.tasks:
        arm(turn.state, task)


def _attempt_due(turn: Turn, task: Task) -> None:
    now, limits = turn.now, task.limits
    assert task.assigned_at is not None
    if limits.run and now >= task.assigned_at + limits.run:
        _over(turn, task, "RUN_LIMIT", limits.run, "one attempt")
    elif (
        limits.idle
        and task.streaming
        and now >= (task.progress_at or task.assigned_at) + limits.idle
    ):
        _over(turn, task, "IDLE_LIMIT", limits.idle, "two signs of progress")
    elif limits.accept and not task.accepted and now >= task.assigned_at + limits.accept:
        _stop_attempt(turn, task, "it was not accepted in time")
        message = (
            f"executor {task.executor_id} did not accept it within {seconds_text(limits.accept)}"
        )
        lose(turn, task, event_pb2.TASK_LOSS_REASON_WITHDRAWN, message)


def _over(
    turn: Turn, task: Task, code: str, limit: Span, what: str, *, for_good: bool = False
) -> None:  # the parts of one message
    if task.status is TaskStatus.ASSIGNED:
        _stop_attempt(turn, task, code)
    why = failure(
        code,
        f"{task.label} took longer than {seconds_text(limit)} for {what}",
        source=task.id,
        details={"limit": seconds_text(limit), "requirement": " ".join(task.key).rstrip()},
    )
    fail_attempt(turn, task, why, for_good=for_good)


def _stop_attempt(turn: Turn, task: Task, reason: str) -> None:
    turn.command(
        StopAttempt(
            task_id=task.id,
            attempt=task.attempt,
            executor_id=task.executor_id,
            instance=task.instance,
            reason=reason,
        )
    )


def arm(state: RunState, task: Task) -> None:
    """Ask for a look at the task when something about it is due."""
    at = due_at(task)
    if at is not None:
        state.due.arm(at, DUE_PREFIX + task.id)
