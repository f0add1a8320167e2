"""Tasks: scheduled, assigned, tried, lost, ended.

Rules: a task is owned by its attempt, and only an event ends an attempt, never a clock reading. A result counts for the
current attempt of the instance that has it; everything else is stale and changes nothing. Lost and withdrawn attempts are
not tries, and have a cap of their own. Nothing here knows what a node does with a result.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import event_pb2, failure_pb2, task_pb2
from stepgraph_server.core import tool_approvals
from stepgraph_server.core.failures import failure
from stepgraph_server.core.inputs import (
    AttemptOver,
    Cancel,
    Enqueue,
    Pause,
    Send,
    StopAttempt,
    TellChild,
    Unpause,
)
from stepgraph_server.core.instants import (
    MAX_INSTANT,
    Instant,
    Span,
    after,
    seconds_text,
    to_timestamp,
)
from stepgraph_server.core.state import Activation, RunState, Task, TaskStatus

if TYPE_CHECKING:
    from stepgraph.v1 import llm_pb2
    from stepgraph_server.core.inputs import AttemptRef, AttemptsLost
    from stepgraph_server.core.turn import Turn

#: Later than any time.
NEVER: Final = MAX_INSTANT + 1

#: Keys of DueTimes that stand for a task begin so.
DUE_PREFIX: Final = "task:"


# Assigning


def assign(turn: Turn, task: Task) -> None:
    """Hand a waiting task to an executor that has room, or let it wait; ask for approval first, if it needs that.

    In a paused run it waits without being asked for.
    """
    if turn.state.paused:
        return
    following: Task | None = task
    # A loop, not calls: where an executor has come that wants approval, each of a long row may have to be asked about.
    while following is not None:
        following = _hand_out(turn, following)


def _hand_out(turn: Turn, task: Task) -> Task | None:
    """Hand out one task, or ask about it. Returns the one that has its place now, if it waits for a person."""
    if tool_approvals.is_needed(turn, task):
        held = task.activation.held
        following = held[0] if held else None
        tool_approvals.ask(turn, task)
        return following if following is not None and not following.held else None
    placement = turn.world.place(task)
    if placement is None:
        wait_for_room(turn, task)
        return None
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
    send(turn, task)
    return None


def send(turn: Turn, task: Task) -> None:
    """Want an attempt sent that is assigned."""
    turn.command(Send(task, task.attempt, task.executor_id, task.instance))


def wait_for_room(turn: Turn, task: Task) -> None:
    """Let a task wait for an executor, and say so if nobody who is connected could take it."""
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


def cancel_within(
    turn: Turn, activation: Activation, reason: str, *, spawned: bool = False
) -> None:
    """End everything that is outstanding of an activation, and of what it spawned, or of that alone; executors are told to stop."""
    if not activation.outstanding:
        return
    for task in list(turn.state.tasks.values()):
        if not is_within(task.activation, activation) or (
            spawned and task.activation is activation
        ):
            continue
        if task.status is TaskStatus.ASSIGNED:
            stop_attempt(turn, task, reason)
        elif task.status is TaskStatus.CHILD:
            tell_child(turn, task, Cancel(reason=reason))
        attempt = task.attempt if task.status is TaskStatus.ASSIGNED else 0
        end_cancelled(
            turn, task, event_pb2.TaskCancelled(task_id=task.id, attempt=attempt, reason=reason)
        )


def stop_attempt(turn: Turn, task: Task, reason: str) -> None:
    """Tell the executor of a task to stop its attempt."""
    turn.command(
        StopAttempt(
            task_id=task.id,
            attempt=task.attempt,
            executor_id=task.executor_id,
            instance=task.instance,
            reason=reason,
        )
    )


def is_within(activation: Activation | None, outer: Activation) -> bool:
    """Whether an activation is another one, or was spawned by it, however deep."""
    while activation is not None:
        if activation is outer:
            return True
        activation = activation.parent
    return False


def end_cancelled(turn: Turn, task: Task, fact: event_pb2.TaskCancelled) -> None:
    """Record that a task was cancelled."""
    tool_approvals.close_question(turn, task, fact.reason)
    attempt = task.attempt if task.status is TaskStatus.ASSIGNED else 0
    turn.emit("task_cancelled", fact)
    if attempt:
        turn.command(
            AttemptOver(task_id=task.id, attempt=attempt, instance=task.instance, discarded=True)
        )


def tell_child(turn: Turn, task: Task, happened: Cancel | Pause | Unpause) -> None:
    """Let something happen to the child run that performs a task."""
    run_id = child_run_id(turn.state, task)
    turn.command(TellChild(task_id=task.id, run_id=run_id, happened=happened))


def tell_children(turn: Turn, happened: Pause | Unpause) -> None:
    """Let something happen to all child runs."""
    if turn.state.children:
        for task in turn.state.tasks.values():
            if task.status is TaskStatus.CHILD:
                tell_child(turn, task, happened)


def paused_with_parent() -> Pause:
    """Return what happens to the child runs of a run that is paused."""
    return Pause(reason="its parent is paused", by_parent=True)


def child_run_id(state: RunState, task: Task) -> str:
    """Return the id of the run that performs a task: it follows from the task's own, so creating it twice gives one run."""
    return hashlib.sha256(f"{state.run_id}/{task.id}".encode()).hexdigest()


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


def wake(turn: Turn, task: Task) -> None:
    """Record that a sleep is over."""
    event = turn.next_event()
    event.task_completed.task_id = task.id
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
    if turn.state.stopping is not None or turn.state.paused:
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
        case TaskStatus.ASSIGNED | TaskStatus.SLEEPING | TaskStatus.ASKING | TaskStatus.CHILD:
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
    if task.status is TaskStatus.ASKING:
        # No limit counts the time that people take; their question has a deadline of its own.
        return None
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
    elif task.status is TaskStatus.SLEEPING:
        assert task.wakes_at is not None
        at = task.wakes_at
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
    if turn.state.stopping is not None or task.status is TaskStatus.ASKING:
        return
    if limits.total and now >= task.scheduled_at + limits.total:
        _over(turn, task, "TOTAL_LIMIT", limits.total, "the whole task", for_good=True)
    elif task.status is TaskStatus.ASSIGNED:
        _attempt_due(turn, task)
    elif task.status is TaskStatus.SLEEPING:
        assert task.wakes_at is not None
        if now >= task.wakes_at:
            wake(turn, task)
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
        stop_attempt(turn, task, "it was not accepted in time")
        message = (
            f"executor {task.executor_id} did not accept it within {seconds_text(limits.accept)}"
        )
        lose(turn, task, event_pb2.TASK_LOSS_REASON_WITHDRAWN, message)


def _over(
    turn: Turn, task: Task, code: str, limit: Span, what: str, *, for_good: bool = False
) -> None:  # the parts of one message
    if task.status is TaskStatus.ASSIGNED:
        stop_attempt(turn, task, code)
    why = failure(
        code,
        f"{task.label} took longer than {seconds_text(limit)} for {what}",
        source=task.id,
        details={"limit": seconds_text(limit), "requirement": " ".join(task.key).rstrip()},
    )
    fail_attempt(turn, task, why, for_good=for_good)


def arm(state: RunState, task: Task) -> None:
    """Ask for a look at the task when something about it is due."""
    at = due_at(task)
    if at is not None:
        state.due.arm(at, DUE_PREFIX + task.id)
