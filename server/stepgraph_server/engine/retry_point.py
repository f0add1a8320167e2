"""Where a retry begins: the last event before what made a run fail, and the results that were recorded from there on.

Rules: nothing that finished is repeated. What failed is what is tried again; so where a step program failed only because it was told of
an effect that had failed, the retry begins before that effect's end: told the same again, the program would do the same again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from stepgraph.v1 import event_pb2, run_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from stepgraph.v1 import task_pb2
    from stepgraph_server.storage.records import StoredBatch

    Batches = Callable[[int], AsyncIterator[StoredBatch]]

_POLL: Final = "/poll"


class RetryPoint(NamedTuple):
    """Where a retry begins.

    Attributes:
        sequence: The last event that it keeps; it ends an append. 0: none, it begins anew.
        results: What tasks gave that finished after it, in order.
    """

    sequence: int
    results: list[tuple[str, task_pb2.TaskResult]]


class _Cause(NamedTuple):
    """A task that failed for good: which, why, and the last event before the append that says so."""

    task_id: str
    code: str
    before: int


@dataclass(slots=True)
class _Since:
    """What happened after a point."""

    results: list[tuple[str, task_pb2.TaskResult]]
    scheduled: set[str]
    #: Something finished that begins only after the point, or came from people; it would have to be done again.
    repeats: bool


async def find_retry_point(batches: Batches) -> RetryPoint:
    """Return where a retry of a run that is FAILED begins.

    Args:
        batches: Gives the run's appends after an event.
    """
    failing, cause = await _failure(batches)
    if cause is not None:
        since = await _since(batches, cause.before)
        if not since.repeats:
            return RetryPoint(cause.before, since.results)
    return RetryPoint(failing, (await _since(batches, failing)).results)


async def _failure(batches: Batches) -> tuple[int, _Cause | None]:
    """Return the last event before the append in which the run failed, and the effect that a program was told of, if it was that."""
    ended: list[_Cause] = []
    async for batch in batches(0):
        before, events = batch.first_sequence - 1, _events(batch)
        failed = [
            _Cause(event.task_failed.task_id, event.task_failed.failure.code, before)
            for event in events
            if event.HasField("task_failed") and not event.task_failed.HasField("retry_time")
        ]
        if any(_fails(event) for event in events):
            return before, _told(failed, ended)
        ended += failed
    message = "a run that is FAILED has an event that says so"
    raise AssertionError(message)


def _told(failed: Iterable[_Cause], ended: list[_Cause]) -> _Cause | None:
    """Return the last task below a program that failed earlier, with the code with which the program then failed."""
    for poll in failed:
        if not poll.task_id.endswith(_POLL):
            continue
        program = poll.task_id.removesuffix(_POLL).rpartition("/")[0] + "/"
        for one in reversed(ended):
            if one.task_id.startswith(program) and one.code == poll.code:
                return one
    return None


async def _since(batches: Batches, sequence: int) -> _Since:
    since = _Since(results=[], scheduled=set(), repeats=False)
    async for batch in batches(sequence):
        for event in _events(batch):
            match event.WhichOneof("kind"):
                case "task_scheduled":
                    since.scheduled.add(event.task_scheduled.task_id)
                case "task_completed":
                    task_id = event.task_completed.task_id
                    since.results.append((task_id, event.task_completed.result))
                    since.repeats |= task_id in since.scheduled
                case "interrupt_answered" | "signal_received":
                    since.repeats = True
                case _:
                    pass
    return since


def _events(batch: StoredBatch) -> Iterable[event_pb2.RunEvent]:
    return event_pb2.EventBatch.FromString(batch.batch).events


def _fails(event: event_pb2.RunEvent) -> bool:
    match event.WhichOneof("kind"):
        case "run_failed":
            return True
        case "run_stopping":
            return event.run_stopping.outcome == run_pb2.RUN_STATUS_FAILED
        case _:
            return False
