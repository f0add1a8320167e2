"""What a run waits for, in words that say what to do about it.

Rules: reads, and changes nothing. Everything is told from the state as it is held and from who is connected; no payloads.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Protocol, assert_never

from stepgraph.v1 import run_service_pb2
from stepgraph_server.core import interrupts, tasks
from stepgraph_server.core.instants import Instant, to_timestamp
from stepgraph_server.core.state import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepgraph.v1 import interrupt_pb2
    from stepgraph_server.core.state import RunState, Task
    from stepgraph_server.executors.registry import Registry

#: The most that is told of one run; a fan-out has thousands of the same.
MAX_WAITS = 1_000


class Connected(Protocol):
    """Who is connected."""

    def capable(self, task: Task) -> int:
        """Count the executors that are connected and could take a task."""
        ...

    def has(self, executor_id: str, instance: str) -> bool:
        """Whether that process of an executor is connected."""
        ...


class ConnectedExecutors:
    """See Connected: the executors of a namespace."""

    def __init__(self, registry: Registry, namespace: str) -> None:
        self._registry = registry
        self._namespace = namespace

    def capable(self, task: Task) -> int:
        """See Connected."""
        return self._registry.capable(self._namespace, task.key, task.selector)

    def has(self, executor_id: str, instance: str) -> bool:
        """See Connected."""
        return self._registry.find(self._namespace, executor_id, instance) is not None


def waits_of(state: RunState, connected: Connected) -> list[run_service_pb2.Wait]:
    """Return what a run waits for: first what holds up all of it, then tasks, then questions. Empty for a final run."""
    if state.final:
        return []
    waits = [*_of_the_whole(state)]
    for task in state.tasks.values():
        if len(waits) >= MAX_WAITS:
            break
        waits.append(_of_task(state, task, connected))
    for question in state.questions.values():
        if question.open and not question.interrupt.task_id and len(waits) < MAX_WAITS:
            waits.append(_of_question(interrupts.current(question)))
    return waits


def _of_the_whole(state: RunState) -> Iterator[run_service_pb2.Wait]:
    if state.stopping is not None:
        yield _wait(
            f"ends ({state.stopping.failure.code}) as soon as its live attempts have reported",
            due=state.stopping.grace_at,
        )
    elif state.paused:
        yield _wait("is paused: results are recorded and nothing starts; unpause it to go on")
    elif state.is_pending:
        yield _wait("has a start delay", since=state.started_at, due=state.starts_at)


def _of_task(state: RunState, task: Task, connected: Connected) -> run_service_pb2.Wait:
    wait = _wait("", since=task.queued_at, due=None if state.paused else tasks.due_at(task))
    wait.task_id = task.id
    if task.last_failure is not None:
        wait.last_failure.CopyFrom(task.last_failure)
    if task.status not in (TaskStatus.SLEEPING, TaskStatus.CHILD):
        wait.requirement.CopyFrom(task.requirement)
        wait.capable_executors = connected.capable(task)
    match task.status:
        case TaskStatus.SLEEPING:
            wait.since_time.CopyFrom(to_timestamp(task.scheduled_at))
            wait.description = "sleeps"
        case TaskStatus.CHILD:
            wait.since_time.CopyFrom(to_timestamp(task.scheduled_at))
            wait.child_run_id = tasks.child_run_id(state, task)
            wait.description = _of_child(task, wait.child_run_id)
        case TaskStatus.BACKOFF:
            wait.description = f"{task.label} is tried again; it has failed {_times(task.tries)}"
        case TaskStatus.ASSIGNED:
            assert task.assigned_at is not None
            wait.since_time.CopyFrom(to_timestamp(task.assigned_at))
            wait.description = _of_attempt(task, connected)
        case TaskStatus.ASKING:
            question = state.questions[task.question_id]
            wait.since_time.CopyFrom(question.interrupt.open_time)
            if question.interrupt.HasField("deadline_time"):
                wait.due_time.CopyFrom(question.interrupt.deadline_time)
            wait.question.CopyFrom(interrupts.current(question))
            wait.description = (
                f"{task.label} waits for approval: stepgraph answer {task.question_id} …"
            )
        case TaskStatus.QUEUED:
            wait.description = _of_queued(task, wait.capable_executors)
        case _:
            assert_never(task.status)
    return wait


def _of_attempt(task: Task, connected: Connected) -> str:
    runs = f"{task.label} runs at executor {task.executor_id}, attempt {task.attempt}"
    if connected.has(task.executor_id, task.instance):
        return runs
    return f"{runs}, which is not connected now; if it does not come back, the task is handed out again"


def _of_child(task: Task, run_id: str) -> str:
    if not task.child_started:
        return f"{task.label} is about to start as child run {run_id}"
    # Whether it works, is paused or waits for an executor, it says itself.
    does = "waits for people" if task.child_waits else "is not over"
    return f"{task.label} is child run {run_id}, which {does}: stepgraph runs explain {run_id}"


def _of_queued(task: Task, capable: int) -> str:
    if task.held:
        return f"{task.label} waits until others of its turn have ended: the node has a concurrency cap"
    if capable:
        executors = "one executor that can" if capable == 1 else f"{capable} executors that can"
        return f"{task.label} waits for room at {executors} do it"
    selector = ", ".join(f"{name}={value}" for name, value in task.selector)
    labels = f" with the labels {selector}" if selector else ""
    return (
        f"{task.label} waits for an executor: none that is connected can do "
        f"{' '.join(task.key[:2])}{labels}; connect one"
    )


def _of_question(asked: interrupt_pb2.Interrupt) -> run_service_pb2.Wait:
    wait = run_service_pb2.Wait(
        task_id=asked.activation_id, since_time=asked.open_time, question=asked
    )
    if asked.HasField("deadline_time"):
        wait.due_time.CopyFrom(asked.deadline_time)
    match asked.reason.WhichOneof("kind"):
        case "signal":
            wait.description = f"waits for a signal: {_signal_command(asked)}"
        case _:
            wait.description = f"waits for an answer: stepgraph answer {asked.interrupt_id} …"
    return wait


def _signal_command(asked: interrupt_pb2.Interrupt) -> str:
    """Return what sends the signal, as one would type it."""
    signal = asked.reason.signal
    words = ["stepgraph", "runs", "signal", asked.run_id, signal.name]
    return shlex.join(
        [*words, "--correlation", signal.correlation] if signal.correlation else words
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _wait(
    description: str, *, since: Instant | None = None, due: Instant | None = None
) -> run_service_pb2.Wait:
    return run_service_pb2.Wait(
        description=description,
        since_time=to_timestamp(since) if since is not None else None,
        due_time=to_timestamp(due) if due is not None else None,
    )
