"""Spans of the attempts of one run.

Rules: a span begins when an executor has the attempt and ends with the event that says how it ended. Waiting for an executor
is a number in it, no span: nothing works meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import event_pb2, llm_pb2
from stepgraph_server.telemetry import gen_ai
from stepgraph_server.telemetry import span_names as names
from stepgraph_server.telemetry.spans import End, EndedSpan, nanoseconds
from stepgraph_server.telemetry.trace_ids import activation_of, node_of

if TYPE_CHECKING:
    from stepgraph.v1 import task_pb2
    from stepgraph_server.telemetry.spans import Attributes
    from stepgraph_server.telemetry.trace_ids import RunTrace

_NANOS_PER_MS: Final = 1_000_000


@dataclass(slots=True, kw_only=True)
class _Task:
    """A task that is outstanding."""

    scheduled: event_pb2.TaskScheduled
    #: Since when it waits for an executor.
    queued_ns: int
    attempt: int = 0
    executor_id: str = ""
    #: When an executor got the attempt; 0 while none has one.
    start_ns: int = 0

    def assign(self, assignment: task_pb2.TaskAssignment, at_ns: int) -> None:
        self.attempt, self.executor_id = assignment.attempt, assignment.executor_id
        self.start_ns = at_ns


class AttemptSpans:
    """The attempts of a run that are under way."""

    def __init__(self, trace: RunTrace, common: Attributes) -> None:
        """`common` is what all spans of the run have; it may still grow."""
        self._trace: Final = trace
        self._common: Final = common
        self._tasks: dict[str, _Task] = {}
        self.input_tokens = 0
        self.output_tokens = 0

    def scheduled(self, fact: event_pb2.TaskScheduled, at_ns: int) -> None:
        """There is work, and perhaps somebody who has it already."""
        task = self._tasks[fact.task_id] = _Task(scheduled=fact, queued_ns=at_ns)
        if fact.HasField("assignment"):
            task.assign(fact.assignment, at_ns)

    def assigned(self, fact: event_pb2.TaskAssigned, at_ns: int) -> None:
        """An executor has it."""
        task = self._tasks.get(fact.task_id)
        if task is not None:
            task.assign(fact.assignment, at_ns)

    def completed(self, fact: event_pb2.TaskCompleted, at_ns: int) -> EndedSpan | None:
        """There is a result."""
        usage = gen_ai.usage_of(fact.result)
        self._count(usage)
        task = self._tasks.pop(fact.task_id, None)
        if task is None:
            return None  # the server gave it by itself
        extra: Attributes = {}
        error = gen_ai.describe_result(fact.result, extra)
        gen_ai.describe_usage(usage, extra)
        return self._end(task, End(outcome="completed", at_ns=at_ns, error=error), extra)

    def failed(self, fact: event_pb2.TaskFailed, at_ns: int) -> EndedSpan | None:
        """An attempt failed; there may be another one."""
        self._count(fact.usage)
        task = self._tasks.get(fact.task_id)
        if task is None:
            return None  # the server did it by itself
        extra: Attributes = {}
        gen_ai.describe_usage(fact.usage, extra)
        end = End(outcome="failed", at_ns=at_ns, error=fact.failure.code)
        span = self._end(task, end, extra)
        if fact.HasField("retry_time"):
            task.queued_ns = nanoseconds(fact.retry_time)
        else:
            del self._tasks[fact.task_id]
        return span

    def lost(self, fact: event_pb2.TaskLost, at_ns: int) -> EndedSpan | None:
        """An attempt ended without a word of it, and the task waits again."""
        task = self._tasks.get(fact.task_id)
        if task is None:
            return None
        reason = event_pb2.TaskLossReason.Name(fact.reason).removeprefix("TASK_LOSS_REASON_")
        span = self._end(task, End(outcome="lost", at_ns=at_ns, error=reason), {})
        task.queued_ns = at_ns
        return span

    def cancelled(self, fact: event_pb2.TaskCancelled, at_ns: int) -> EndedSpan | None:
        """The task is not wanted any more."""
        self._count(fact.usage)
        extra: Attributes = {}
        gen_ai.describe_usage(fact.usage, extra)
        task = self._tasks.pop(fact.task_id, None)
        if task is None:
            return None
        return self._end(task, End(outcome="cancelled", at_ns=at_ns), extra)

    def begin_anew(self, at_ns: int) -> None:
        """What is outstanding is outstanding in another run now: nobody has it, and nothing was used."""
        self.input_tokens = self.output_tokens = 0
        for task in self._tasks.values():
            task.queued_ns, task.start_ns = at_ns, 0

    def abandon(self, at_ns: int) -> list[EndedSpan]:
        """Return the attempts that nothing was heard of when the run ended."""
        end = End(outcome="unreported", at_ns=at_ns)
        spans = [self._end(task, end, {}) for task in self._tasks.values()]
        self._tasks.clear()
        return [span for span in spans if span is not None]

    def _count(self, usage: llm_pb2.Usage) -> None:
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens

    def _end(self, task: _Task, end: End, extra: Attributes) -> EndedSpan | None:
        if not task.start_ns:
            return None  # no executor had it
        trace, task_id = self._trace, task.scheduled.task_id
        activation_id = activation_of(task_id)
        attributes: Attributes = {
            **self._common,
            names.NODE_ID: node_of(activation_id),
            names.TASK_ID: f"{trace.run_id}/{task_id}",
            names.ATTEMPT: task.attempt,
            names.EXECUTOR_ID: task.executor_id,
            names.QUEUE_MS: max(0, task.start_ns - task.queued_ns) // _NANOS_PER_MS,
            names.OUTCOME: end.outcome,
        }
        name = gen_ai.describe_work(task.scheduled, trace.run_id, attributes)
        attributes.update(extra)
        start_ns, task.start_ns = task.start_ns, 0
        return EndedSpan(
            trace=trace,
            name=name,
            span_id=trace.attempt_span(task_id, task.attempt),
            parent_id=trace.node_span(activation_id),
            start_ns=start_ns,
            end_ns=end.at_ns,
            attributes=attributes,
            is_remote_call=True,
            error=end.error,
        )
