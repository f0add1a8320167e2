"""The view without payloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from google.protobuf.descriptor import FieldDescriptor

from stepgraph.v1 import event_pb2
from stepgraph_server.engine.watch.summary import CLEARED, summary_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import Descriptor

KINDS = event_pb2.RunEvent.DESCRIPTOR.oneofs_by_name["kind"].fields

#: Messages that hold what callers, models, tools or people said.
PAYLOADS = {
    *("Value", "GraphState", "StateUpdate", "RunInput", "TaskResult", "ToolDefinition"),
    *("InterruptAnswer", "InterruptOption", "Message"),
}
#: Texts that such a message may hold outside of them, by message and field.
TEXTS = {
    *("Failure.message", "Failure.details", "Failure.causes", "Human.prompt"),
    *("Human.json_schema", "External.token", "Interrupt.answer_schema", "ToolQuestion.args"),
}


def payloads_of(descriptor: Descriptor, path: str = "") -> Iterator[str]:
    """Yield the paths of all payloads below a message."""
    for field in descriptor.fields:
        here = f"{path}{field.name}"
        if f"{descriptor.name}.{field.name}" in TEXTS:
            yield here
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            if field.message_type.name in PAYLOADS:
                yield here
            else:
                yield from payloads_of(field.message_type, f"{here}.")


@pytest.mark.parametrize("kind", [field.name for field in KINDS])
def test_every_payload_of_every_kind_is_cleared(kind: str) -> None:
    """The table is complete: a field that the schema gains has to be decided here."""
    field = event_pb2.RunEvent.DESCRIPTOR.fields_by_name[kind]
    missing = [
        path
        for path in payloads_of(field.message_type)
        if not any(path == cleared or path.startswith(f"{cleared}.") for cleared in CLEARED[kind])
    ]
    assert not missing


def test_every_kind_is_in_the_table() -> None:
    """One that is not would be shown as an event without a kind."""
    assert set(CLEARED) == {field.name for field in KINDS}


@pytest.mark.parametrize("kind", sorted(CLEARED))
def test_every_path_of_the_table_exists(kind: str) -> None:
    """A field that was renamed is not forgotten."""
    for path in CLEARED[kind]:
        descriptor = event_pb2.RunEvent.DESCRIPTOR.fields_by_name[kind].message_type
        for name in path.split("."):
            assert name in descriptor.fields_by_name, f"{kind}.{path}"
            descriptor = descriptor.fields_by_name[name].message_type


def summary(event: event_pb2.RunEvent) -> event_pb2.RunEvent:
    batch = event_pb2.EventBatch(events=[event]).SerializeToString()
    return event_pb2.EventBatch.FromString(summary_of(batch)).events[0]


def test_ids_codes_and_times_stay() -> None:
    """A failure without what it says."""
    event = event_pb2.RunEvent(sequence=7)
    event.time.seconds = 5
    failed = event.task_failed
    failed.task_id, failed.attempt, failed.tries = "1/n/t0", 2, 1
    failed.failure.code = "RATE_LIMITED"
    failed.failure.message = "secret"
    failed.failure.details["a"] = "secret"
    failed.failure.payload.text = "secret"
    failed.failure.causes.add(code="X", message="secret")
    failed.usage.input_tokens = 9
    short = summary(event)
    assert "secret" not in str(short)
    assert (short.sequence, short.time.seconds) == (7, 5)
    assert (short.task_failed.failure.code, short.task_failed.usage.input_tokens) == (
        "RATE_LIMITED",
        9,
    )


def test_what_is_absent_stays_absent() -> None:
    """Clearing below a message must not make it appear."""
    event = event_pb2.RunEvent(sequence=1)
    event.interrupt_opened.question.interrupt_id = "i1"
    short = summary(event)
    assert short == event
    assert not short.interrupt_opened.question.HasField("reason")
    assert not short.interrupt_opened.question.HasField("tool")


def test_a_kind_of_a_newer_server_shows_its_sequence_only() -> None:
    """What is not known can't be cleared."""
    raw = event_pb2.RunEvent(sequence=4).SerializeToString() + b"\xa2\x06\x06secret"
    short = summary(event_pb2.RunEvent.FromString(raw))
    assert short.SerializeToString() == event_pb2.RunEvent(sequence=4).SerializeToString()


def test_a_field_of_a_newer_server_is_not_shown() -> None:
    """It may be a payload, in a kind that is known as well as anywhere below it."""
    event = event_pb2.RunEvent(sequence=4)
    event.node_completed.node_id = "n"
    known = event.SerializeToString()
    event.node_completed.MergeFromString(b"\xa2\x7f\x06secret")
    assert b"secret" in event.SerializeToString()
    assert summary(event).SerializeToString() == known


def test_maps_and_optional_fields_that_are_shown_stay() -> None:
    """The cut copy of a message has the maps of the original and knows what is set."""
    event = event_pb2.RunEvent(sequence=1)
    event.run_started.labels["team"] = "a"
    event.run_started.input.value.text = "secret"
    short = summary(event)
    assert dict(short.run_started.labels) == {"team": "a"}
    assert not short.run_started.HasField("input")


def test_events_stay_in_order() -> None:
    """None is lost, the empty ones neither."""
    batch = event_pb2.EventBatch(events=[event_pb2.RunEvent(sequence=at) for at in (1, 2, 3)])
    short = event_pb2.EventBatch.FromString(summary_of(batch.SerializeToString()))
    assert [event.sequence for event in short.events] == [1, 2, 3]
    assert summary_of(b"") == b""
