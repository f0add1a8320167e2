"""What happened in runs since the server started, counted from the events that became durable.

Rules: called on the loop with each append, so an event costs a look at its kind. Nothing is counted by run, node, executor or
any other name that somebody chooses: the number of counters is the same for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph.v1 import event_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from stepgraph.v1 import llm_pb2

    class _Costs(Protocol):
        """Whatever states what it cost."""

        @property
        def usage(self) -> llm_pb2.Usage: ...


ENDINGS: Final = ("completed", "failed", "cancelled")
_RUN_ENDS: Final = {f"run_{ending}": ending for ending in ENDINGS}
_NODE_ENDS: Final = {f"node_{ending}": ending for ending in ENDINGS}
LOSSES: Final = {
    event_pb2.TASK_LOSS_REASON_UNSPECIFIED: "unspecified",
    event_pb2.TASK_LOSS_REASON_DISCONNECTED: "disconnected",
    event_pb2.TASK_LOSS_REASON_FORGOTTEN: "forgotten",
    event_pb2.TASK_LOSS_REASON_WITHDRAWN: "withdrawn",
    event_pb2.TASK_LOSS_REASON_REJECTED: "rejected",
}


class Tally:
    """Counters of one server. Written on the loop, read by any thread."""

    def __init__(self) -> None:
        self.runs_started = 0
        self.runs_ended = dict.fromkeys(ENDINGS, 0)
        self.nodes_ended = dict.fromkeys(ENDINGS, 0)
        self.attempts_started = 0
        self.attempts_failed = 0
        self.attempts_lost = dict.fromkeys(LOSSES.values(), 0)
        self.retries = 0
        self.questions_opened = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.events = 0
        self.bytes = 0

    def count(self, events: Sequence[event_pb2.RunEvent], size: int) -> None:
        """Count the events of one append, of so many bytes."""
        self.events += len(events)
        self.bytes += size
        for event in events:
            match event.WhichOneof("kind"):
                case "task_scheduled":
                    self.attempts_started += event.task_scheduled.HasField("assignment")
                case "task_completed":
                    self._count_result(event.task_completed)
                case "superstep_started" | "node_skipped" | None:
                    pass
                case kind if kind in _NODE_ENDS:
                    self.nodes_ended[_NODE_ENDS[kind]] += 1
                case kind:
                    self._count_rarer(event, kind)

    def _count_result(self, fact: event_pb2.TaskCompleted) -> None:
        kind = fact.result.WhichOneof("kind")
        if kind == "llm":
            self._count_usage(fact.result.llm)
        elif kind == "agent":
            self._count_usage(fact.result.agent)

    def _count_usage(self, cost: _Costs) -> None:
        usage = cost.usage
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens

    def _count_rarer(self, event: event_pb2.RunEvent, kind: str) -> None:
        match kind:
            case "task_assigned":
                self.attempts_started += 1
            case "task_failed":
                self._count_failure(event.task_failed)
            case "task_lost":
                self.attempts_lost[LOSSES.get(event.task_lost.reason, "unspecified")] += 1
            case "task_cancelled":
                self._count_usage(event.task_cancelled)
            case "run_started":
                self.runs_started += 1
            case "interrupt_opened":
                self.questions_opened += 1
            case _ if kind in _RUN_ENDS:
                self.runs_ended[_RUN_ENDS[kind]] += 1
            case _:
                pass

    def _count_failure(self, fact: event_pb2.TaskFailed) -> None:
        self._count_usage(fact)
        if fact.attempt:
            self.attempts_failed += 1
        if fact.HasField("retry_time"):
            self.retries += 1
