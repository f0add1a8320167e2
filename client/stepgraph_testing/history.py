"""What happened in a run, for assertions and for people: its path, its tasks, what it waits for, how it ended.

Rules: all of it follows from the events, whoever played the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, SupportsIndex, TypeAlias, overload

from stepgraph.v1 import event_pb2

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from stepgraph.v1 import failure_pb2, interrupt_pb2, state_pb2

Outcome: TypeAlias = Literal["open", "succeeded", "failed", "cancelled"]
Status: TypeAlias = Literal["open", "completed", "failed", "cancelled"]


class Path(tuple[str, ...]):
    """The nodes that ran, in the order in which they started. Equal to a list of their ids."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, list | tuple) else False

    @overload
    def __getitem__(self, index: SupportsIndex) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Path: ...

    def __getitem__(self, index: SupportsIndex | slice) -> str | Path:
        """Return a node, or a part of the way, which is a path too: `assert run.path[-2:] == ["act", "answer"]`."""
        return (
            Path(super().__getitem__(index))
            if isinstance(index, slice)
            else super().__getitem__(index)
        )

    def __hash__(self) -> int:
        return super().__hash__()

    def __repr__(self) -> str:
        return " → ".join(self) or "(no node)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSeen:
    """One task of a run.

    Attributes:
        task_id: Its id within the run.
        node_id: The node that it was for.
        label: What it was, without payload: "llm m", "tool search", "sleep 1 h".
        attempts: How often it was handed out.
        outcome: What became of it.
        failures: The codes of its failed attempts, in order.
        due_time: When it goes on by itself: the end of a sleep, the next try. None if it does not wait for a time.
        unclaimed: No executor can take it.
        child_run_id: The run that performs it; empty if none does.
    """

    task_id: str
    node_id: str
    label: str
    attempts: int = 0
    outcome: Outcome = "open"
    failures: tuple[str, ...] = ()
    due_time: Timestamp | None = None
    unclaimed: bool = False
    child_run_id: str = ""


class History(Sequence[event_pb2.RunEvent]):
    """The events of a run, and what follows from them."""

    def __init__(self, events: Sequence[event_pb2.RunEvent]) -> None:
        self._events = tuple(events)

    def __getitem__(self, index: int) -> event_pb2.RunEvent:  # type: ignore[override]  # slices are not needed
        return self._events[index]

    def __len__(self) -> int:
        return len(self._events)

    def of(self, kind: str) -> list[event_pb2.RunEvent]:
        """Return the events of a kind, such as "node_failed"."""
        if kind not in event_pb2.RunEvent.DESCRIPTOR.fields_by_name:
            there = ", ".join(each.name for each in event_pb2.RunEvent.DESCRIPTOR.oneofs[0].fields)
            message = f"there are no events {kind!r}; there are {there}"
            raise ValueError(message)
        return [event for event in self._events if event.WhichOneof("kind") == kind]

    @property
    def path(self) -> Path:
        """The nodes that ran, in the order of their supersteps, and inside of one in that of their ids."""
        return Path(
            node for event in self.of("superstep_started") for node in event.superstep_started.nodes
        )

    @property
    def tasks(self) -> tuple[TaskSeen, ...]:
        """The tasks, in the order in which they were scheduled."""
        return tuple(_tasks(self._events).values())

    @property
    def questions(self) -> tuple[interrupt_pb2.Interrupt, ...]:
        """The questions that are open, oldest first."""
        found: dict[str, interrupt_pb2.Interrupt] = {}
        for event in self._events:
            match event.WhichOneof("kind"):
                case "interrupt_opened":
                    asked = event.interrupt_opened.question
                    found[asked.interrupt_id] = asked
                case "interrupt_answered":
                    found.pop(event.interrupt_answered.interrupt_id, None)
                case "interrupt_closed":
                    found.pop(event.interrupt_closed.interrupt_id, None)
                case _:
                    pass
        return tuple(found.values())

    @property
    def status(self) -> Status:
        """How the run ended; "open" if it has not."""
        match self._events[-1].WhichOneof("kind") if self._events else None:
            case "run_completed":
                return "completed"
            case "run_failed":
                return "failed"
            case "run_cancelled":
                return "cancelled"
            case _:
                return "open"

    @property
    def failure(self) -> failure_pb2.Failure | None:
        """Why it failed; None if it did not."""
        failed = self.of("run_failed")
        return failed[-1].run_failed.failure if failed else None

    @property
    def result(self) -> state_pb2.GraphExecutionResult | None:
        """How it ended, in the schema's words; None if it has not."""
        if not self._events:
            return None
        last = self._events[-1]
        match last.WhichOneof("kind"):
            case "run_completed":
                return last.run_completed.result
            case "run_failed":
                return last.run_failed.result
            case "run_cancelled":
                return last.run_cancelled.result
            case _:
                return None

    def waits_for(self) -> list[str]:
        """Return in words what the run waits for; empty if it has ended."""
        if self.status != "open":
            return []
        return [*map(_question_line, self.questions), *self._task_lines()]

    def _task_lines(self) -> Iterator[str]:
        asked = {question.node_id for question in self.questions}
        for task in self.tasks:
            if task.outcome != "open":
                continue
            if task.unclaimed:
                yield f"{task.node_id}: {task.label}: no executor can do it; declare it at the workbench"
            elif task.due_time is not None:
                yield f"{task.node_id}: {task.label}: until {task.due_time.ToJsonString()}"
            elif task.child_run_id:
                yield f"{task.node_id}: {task.label}: the child run {task.child_run_id} is not over"
            elif task.attempts:
                yield f"{task.node_id}: {task.label}: attempt {task.attempts} is under way"
            elif task.node_id not in asked:
                yield f"{task.node_id}: {task.label}: it was not handed out yet"

    def story(self) -> str:
        """Return for people what happened, and how it is: one line each."""
        lines = [f"path: {self.path!r}", *map(_task_line, self.tasks)]
        match self.status:
            case "open":
                lines += [
                    "it waits for:",
                    *(f"  {line}" for line in self.waits_for() or ["nothing"]),
                ]
            case "failed":
                failure = self.failure
                assert failure is not None, "this is what a failed run has"
                lines.append(f"it failed: {failure.code}: {failure.message}")
            case ended:
                lines.append(f"it was {ended}" if ended == "cancelled" else f"it {ended}")
        return "\n".join(lines)


def _tasks(events: Sequence[event_pb2.RunEvent]) -> dict[str, TaskSeen]:
    tasks: dict[str, TaskSeen] = {}
    for event in events:
        kind = event.WhichOneof("kind")
        if kind == "task_scheduled":
            fact = event.task_scheduled
            tasks[fact.task_id] = TaskSeen(
                task_id=fact.task_id,
                node_id=fact.task_id.split("/")[1],
                label=fact.label,
                attempts=fact.assignment.attempt,
                due_time=fact.due_time if fact.HasField("due_time") else None,
            )
        elif kind is not None and (kind.startswith("task_") or kind == "child_started"):
            task_id: str = getattr(event, kind).task_id
            # What the server answers by itself (the poll of a Map, a call that can't run) was never scheduled: nobody worked on it.
            if task_id in tasks:
                tasks[task_id] = _after(tasks[task_id], event)
    return tasks


def _after(task: TaskSeen, event: event_pb2.RunEvent) -> TaskSeen:
    """Return a task after something has happened to it."""
    match event.WhichOneof("kind"):
        case "task_assigned":
            attempt = event.task_assigned.assignment.attempt
            return replace(task, attempts=attempt, due_time=None, unclaimed=False)
        case "task_completed":
            return replace(task, outcome="succeeded", due_time=None)
        case "task_cancelled":
            return replace(task, outcome="cancelled", due_time=None)
        case "child_started":
            return replace(task, child_run_id=event.child_started.run_id)
        case "task_unclaimed":
            return replace(task, unclaimed=True)
        case "task_failed":
            fact = event.task_failed
            again = fact.HasField("retry_time")
            return replace(
                task,
                outcome="open" if again else "failed",
                failures=(*task.failures, fact.failure.code),
                due_time=fact.retry_time if again else None,
            )
        case _:
            return task


def _task_line(task: TaskSeen) -> str:
    tries = f", {task.attempts} attempts" if task.attempts > 1 else ""
    codes = f" ({', '.join(task.failures)})" if task.failures else ""
    return f"  {task.task_id}: {task.label}: {task.outcome}{tries}{codes}"


def _question_line(question: interrupt_pb2.Interrupt) -> str:
    match question.reason.WhichOneof("kind"):
        case "external":
            what = f"the token {question.reason.external.token!r}"
        case "signal":
            what = f"the signal {question.reason.signal.name!r}"
        case _:
            what = f"an answer to {question.reason.human.prompt!r}"
    until = (
        f", until {question.deadline_time.ToJsonString()}"
        if question.HasField("deadline_time")
        else ""
    )
    return f"{question.node_id}: {what}{until}"
