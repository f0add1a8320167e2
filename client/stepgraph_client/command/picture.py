"""Where a run is now: its path, what is under way, what it waits for. What a live view shows.

Rules: pure; events in, a picture out. It keeps what is open and the end of the path, and nothing that is over, so a run of a hundred
thousand events is no larger than one of ten. An event that this version does not know changes nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepgraph.v1.event_pb2 import RunEvent
from stepgraph_client.render import who
from stepgraph_client.wording import graph_text, names_text, requirement_text, shortened, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepgraph.v1.event_pb2 import TaskScheduled
    from stepgraph.v1.interrupt_pb2 import Interrupt

#: So much of a path is looked at before it is cut to the width of a terminal.
MAX_PATH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTask:
    """A task that is not over. `since_s` is when it came into its present state, in seconds since the epoch."""

    name: str
    label: str
    since_s: float
    executor_id: str = ""
    #: Why no executor works on it, if that is anything but that none had room.
    trouble: str = ""


class RunPicture:
    """A run as it is after the events that were taken."""

    def __init__(self) -> None:
        self.run_id = ""
        self.graph = ""
        self.status = "running"
        self.superstep = 0
        self.start_s = 0.0
        self.path: deque[str] = deque(maxlen=MAX_PATH)
        self.tasks: dict[str, OpenTask] = {}
        self.questions: dict[str, Interrupt] = {}
        self.tokens = 0

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.status in {"completed", "failed", "cancelled"}

    @property
    def standing(self) -> str:
        """How the run stands, in a word: its status, or that all it waits for is people, or signals."""
        if self.status != "running" or self.tasks or not self.questions:
            return self.status
        kinds = {each.reason.WhichOneof("kind") for each in self.questions.values()}
        return "waits for a signal" if kinds == {"signal"} else "waits for an answer"

    def take(self, event: RunEvent) -> None:
        """Let an event change the picture."""
        kind = event.WhichOneof("kind") or ""
        if not self.start_s:
            self.start_s = seconds_of(event)
        taker = _TAKERS.get(kind)
        if taker is not None:
            taker(self, event)

    # The run ------------------------------------------------------------------------------------------------------

    def _run_started(self, event: RunEvent) -> None:
        self.run_id = event.run_started.run_id
        self.graph = graph_text(event.run_started.graph)

    def _run_forked(self, event: RunEvent) -> None:
        # What was under way in the run before is given out again here, and its questions are asked again under new ids.
        self.run_id = event.run_forked.run_id
        if event.run_forked.HasField("graph"):
            self.graph = graph_text(event.run_forked.graph)
        self.status = "running"
        self.start_s = seconds_of(event)
        self.questions.clear()
        for task_id in list(self.tasks):
            self._change(task_id, event, executor_id="", trouble="")

    def _superstep_started(self, event: RunEvent) -> None:
        started = event.superstep_started
        self.superstep = started.superstep
        self.path.append(names_text(started.nodes, 4))

    def _run_paused(self, _event: RunEvent) -> None:
        self.status = "paused"

    def _run_unpaused(self, _event: RunEvent) -> None:
        self.status = "running"

    def _run_stopping(self, _event: RunEvent) -> None:
        self.status = "stopping"

    def _ended(self, event: RunEvent) -> None:
        self.status = (event.WhichOneof("kind") or "").removeprefix("run_")
        self.tasks.clear()
        self.questions.clear()

    _run_completed = _run_failed = _run_cancelled = _ended

    # Tasks --------------------------------------------------------------------------------------------------------

    def _task_scheduled(self, event: RunEvent) -> None:
        task = event.task_scheduled
        self.tasks[task.task_id] = OpenTask(
            name=who(task.task_id),
            label=task.label or requirement_text(task.requirement),
            since_s=seconds_of(event),
            executor_id=task.assignment.executor_id,
            trouble=_without_executor(task),
        )

    def _task_assigned(self, event: RunEvent) -> None:
        assigned = event.task_assigned
        self._change(
            assigned.task_id, event, executor_id=assigned.assignment.executor_id, trouble=""
        )

    def _task_unclaimed(self, event: RunEvent) -> None:
        unclaimed = event.task_unclaimed
        wanted = requirement_text(unclaimed.requirement)
        self._change(
            unclaimed.task_id, event, executor_id="", trouble=f"no executor offers {wanted}"
        )

    def _task_failed(self, event: RunEvent) -> None:
        failed = event.task_failed
        if not failed.HasField("retry_time"):
            self.tasks.pop(failed.task_id, None)
            return
        trouble = f"{failed.failure.code or 'failed'}; try {failed.tries + 1} follows"
        self._change(failed.task_id, event, executor_id="", trouble=trouble)

    def _task_lost(self, event: RunEvent) -> None:
        self._change(
            event.task_lost.task_id, event, executor_id="", trouble="its executor was lost"
        )

    def _task_completed(self, event: RunEvent) -> None:
        completed = event.task_completed
        self.tasks.pop(completed.task_id, None)
        usage = completed.result.llm.usage
        self.tokens += usage.input_tokens + usage.output_tokens

    def _task_cancelled(self, event: RunEvent) -> None:
        self.tasks.pop(event.task_cancelled.task_id, None)

    def _change(self, task_id: str, event: RunEvent, *, executor_id: str, trouble: str) -> None:
        task = self.tasks.get(task_id)
        if task is not None:
            self.tasks[task_id] = replace(
                task, since_s=seconds_of(event), executor_id=executor_id, trouble=trouble
            )

    # Questions ----------------------------------------------------------------------------------------------------

    def _interrupt_opened(self, event: RunEvent) -> None:
        question = event.interrupt_opened.question
        self.questions[question.interrupt_id] = question
        if question.task_id:
            self._change(question.task_id, event, executor_id="", trouble="waits for approval")

    def _interrupt_answered(self, event: RunEvent) -> None:
        question = self.questions.pop(event.interrupt_answered.interrupt_id, None)
        if question is not None and question.task_id:
            self._change(question.task_id, event, executor_id="", trouble="")

    def _interrupt_closed(self, event: RunEvent) -> None:
        self.questions.pop(event.interrupt_closed.interrupt_id, None)


_TAKERS: Mapping[str, Callable[[RunPicture, RunEvent], None]] = {
    name.removeprefix("_"): taker
    for name, taker in vars(RunPicture).items()
    if name.removeprefix("_") in RunEvent.DESCRIPTOR.fields_by_name
}


def _without_executor(task: TaskScheduled) -> str:
    """Return what a task waits for that no executor performs; empty if one does."""
    if task.child_run_id:
        return f"is run {task.child_run_id}"
    return f"over at {time_text(task.due_time)}" if task.HasField("due_time") else ""


def seconds_of(event: RunEvent) -> float:
    """Return when an event was decided, in seconds since the epoch."""
    return event.time.seconds + event.time.nanos / 1e9


def path_text(path: deque[str], width: int) -> str:
    """Return the end of a path as it fits; what is before it is shown by a mark."""
    text = ""
    for step in reversed(path):
        longer = f"{step} → {text}" if text else shortened(step, max(width - 4, 8))
        if len(longer) > width - 4:
            return f"… → {text}"
        text = longer
    return text
