"""Attempts as executors get them: bytes that are put together from bytes."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import policy_pb2, task_pb2
from stepgraph_server.core import wire
from stepgraph_server.core.instants import to_duration
from stepgraph_server.core.preparing import prepare

if TYPE_CHECKING:
    from stepgraph_server.core.policies import Limits
    from stepgraph_server.core.state import RunState, Task

#: A larger input does not go into a frame; the executor reads it with ReadTaskInput.
MAX_INPUT_BYTES: Final = 1024 * 1024 - 16 * 1024

_LIMITS_FIELD, _INPUT_FIELD = 5, 8


def task_frame(state: RunState, task: Task, traceparent: str) -> bytes:
    """Return a serialized Task for the current attempt, whose executor gets a trace context of its own."""
    full_id = f"{state.run_id}/{task.id}"
    head = task_pb2.Task(
        task_id=full_id,
        attempt=task.attempt,
        # The same on every attempt, and another one in a fork of the run, because the run's id is part of it.
        idempotency_key=full_id,
        node_id=task.activation.node.id,
        tries=task.tries + 1,
    )
    if traceparent:
        head.traceparent = traceparent
    if state.tracestate:
        head.tracestate = state.tracestate
    data = task_input(state, task)
    if len(data) > MAX_INPUT_BYTES:
        head.input_size_bytes = len(data)
        return head.SerializeToString() + _limits(task.limits)
    # Joined once: an input has several kilobytes, and copying it takes as long as all else here.
    return b"".join(
        (
            head.SerializeToString(),
            _limits(task.limits),
            wire.tag(_INPUT_FIELD),
            wire.varint(len(data)),
            data,
        )
    )


def task_input(state: RunState, task: Task) -> bytes:
    """Return the serialized TaskInput of an outstanding task. It is made again each time, never stored."""
    return prepare(state, task).build(state)


@lru_cache(maxsize=1024)
def _limits(limits: Limits) -> bytes:
    message = policy_pb2.TaskLimits(
        queue=to_duration(limits.queue),
        accept=to_duration(limits.accept),
        run=to_duration(limits.run),
        idle=to_duration(limits.idle),
        total=to_duration(limits.total),
    )
    return wire.length_delimited(_LIMITS_FIELD, message.SerializeToString())
