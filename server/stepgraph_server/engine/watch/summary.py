"""What a watcher with the view SUMMARY does not see.

Rules: one table says what is cleared, by kind of event; everything else stays: kinds, ids, times, codes, digests, counts. A
kind that is not known here comes from a newer server, and nothing but its sequence and time is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph.v1 import event_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from google.protobuf.message import Message

_FAILURE: Final = ("message", "details", "causes", "payload")


def _failure_in(field: str) -> tuple[str, ...]:
    return tuple(f"{field}.{name}" for name in _FAILURE)


#: By kind: the fields that are cleared, as paths below it. A field that holds many is cleared as a whole.
CLEARED: Final[Mapping[str, Sequence[str]]] = {
    "run_started": ("initial_state", "input", "traceparent", "tracestate"),
    "superstep_started": (),
    "node_skipped": (),
    "tools_offered": ("tools",),
    "task_scheduled": (),
    "task_assigned": (),
    "task_completed": ("result",),
    "task_failed": _failure_in("failure"),
    "task_lost": ("message",),
    "task_cancelled": ("partial",),
    "task_unclaimed": (),
    "node_completed": ("update", "value"),
    "node_failed": _failure_in("failure"),
    "node_cancelled": (),
    "edges_evaluated": (),
    "interrupt_opened": (
        "question.reason.human.prompt",
        "question.reason.human.json_schema",
        # Whoever knows the token can answer.
        "question.reason.external.token",
        "question.options",
        "question.answer_schema",
        "question.default_answer",
        "question.answer",
        "question.tool.args",
    ),
    "interrupt_answered": ("answer",),
    "interrupt_closed": (),
    "variable_overwritten": (),
    "signal_received": ("payload",),
    "child_started": (),
    "limit_neared": (),
    "run_paused": (),
    "run_unpaused": (),
    "run_stopping": _failure_in("failure"),
    "run_forked": (),
    "run_completed": ("result.final_state", "result.output"),
    "run_failed": (*_failure_in("failure"), "result.final_state", "result.output"),
    "run_cancelled": (*_failure_in("failure"), "result.final_state", "result.output"),
}

#: The same, with the names split once.
_PATHS: Final = {
    kind: tuple(tuple(path.split(".")) for path in paths) for kind, paths in CLEARED.items()
}


def summary_of(batch: bytes) -> list[bytes]:
    """Return the events of a serialized EventBatch without their payloads, each serialized."""
    summary = []
    for event in event_pb2.EventBatch.FromString(batch).events:
        kind = event.WhichOneof("kind")
        if kind is None:
            event.DiscardUnknownFields()
        else:
            for path in _PATHS[kind]:
                _clear(getattr(event, kind), path)
        summary.append(event.SerializeToString())
    return summary


def _clear(message: Message, path: tuple[str, ...]) -> None:
    for name in path[:-1]:
        # Reading into an absent message would show an empty one where there is none.
        if not message.HasField(name):
            return
        message = getattr(message, name)
    message.ClearField(path[-1])
