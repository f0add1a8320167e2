"""What hides inside a request, at any depth: fields, variants and enum numbers of a newer client, and payloads.

Rules: this walk knows messages by their descriptors only, so a new message is covered on the day it is added. Nothing that
we can't read is ever taken: it would be stored, forgotten or misunderstood without a word. What stands inside a graph is for
the check of graphs to say, which lists it as problems with codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from google.protobuf.unknown_fields import UnknownFieldSet

from stepgraph_server.core import json_text, values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.message import Message
    from google.protobuf.timestamp_pb2 import Timestamp

    from stepgraph.v1 import value_pb2
    from stepgraph_server.api.findings import Findings
    from stepgraph_server.core.values import ValueLimits

MAX_DURATION_SECONDS: Final = 315_576_000_000
MAX_TIMESTAMP_SECONDS: Final = 253_402_300_799
MIN_TIMESTAMP_SECONDS: Final = -62_135_596_800
_NANOS: Final = 1_000_000_000

_GRAPH: Final = "stepgraph.v1.StateGraph"
_STORED: Final = "stepgraph.v1.StoredValue"

#: Oneofs that may be unset: it means "empty", or "from the beginning".
MAY_BE_UNSET: Final = frozenset(
    {"stepgraph.v1.Value.kind", "stepgraph.v1.StartRunRequest.origin", "stepgraph.v1.GraphRef.kind"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """A field that is worth looking into: one that holds messages or numbers of an enum."""

    name: str
    is_repeated: bool
    is_map: bool
    known: frozenset[int] | None  # the numbers of the enum; None for messages


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What to look at in a message of one type."""

    full_name: str
    fields: Mapping[int, _Field]
    oneofs: tuple[tuple[str, str], ...]  # those that must be set, with the names of their members


class ContentWalk:
    """Walks through one request and reports what it finds."""

    def __init__(self, limits: ValueLimits, findings: Findings) -> None:
        self._limits = limits
        self._findings = findings
        self._checks: Mapping[str, Callable[[Message, str], None]] = {
            "stepgraph.v1.Value": self._check_value,
            "google.protobuf.Duration": self._check_duration,
            "google.protobuf.Timestamp": self._check_timestamp,
        }

    def walk(self, message: Message, path: str = "") -> None:
        """Report what is wrong inside a message. It recurses, as deep as the decoder let the message be."""
        plan = _plan(message)
        if plan.full_name == _GRAPH:
            return
        if len(UnknownFieldSet(message)):
            self._report_unknown(message, path)
        else:
            self._check_oneofs(message, plan, path)
            check = self._checks.get(plan.full_name)
            if check is not None:
                check(message, path)
        for descriptor, content in message.ListFields():
            field = plan.fields.get(descriptor.number)
            if field is None:
                continue
            place = f"{path}.{field.name}" if path else field.name
            if field.known is not None:
                self._check_numbers(content, field, field.known, place)
                continue
            for inner, at in _messages(content, field, place):
                if self._findings.is_full:
                    return
                self.walk(inner, at)

    def _report_unknown(self, message: Message, path: str) -> None:
        unknown = UnknownFieldSet(message)
        for field in (unknown[index] for index in range(len(unknown))):
            self._findings.add(
                path or message.DESCRIPTOR.name,
                f"has a field, number {field.field_number}, that this server does not know; "
                "leave it out or upgrade the server",
                reason="UNKNOWN_VARIANT",
            )

    def _check_oneofs(self, message: Message, plan: _Plan, path: str) -> None:
        for name, members in plan.oneofs:
            if message.WhichOneof(name) is None:
                self._findings.add(
                    path or name, f"is unset; set one of {members}", reason="UNKNOWN_VARIANT"
                )

    def _check_numbers(
        self, content: object, field: _Field, known: frozenset[int], path: str
    ) -> None:
        numbers = cast("Iterable[int]", content) if field.is_repeated else (cast("int", content),)
        for number in numbers:
            if number not in known:
                self._findings.add(
                    path,
                    f"has the value {number}, which this server does not know",
                    reason="UNKNOWN_VARIANT",
                )

    def _check_value(self, message: Message, path: str) -> None:
        value = cast("value_pb2.Value", message)
        if value.WhichOneof("kind") is None:
            return  # whether a value may be empty is for who wants it to say
        for violation in values.check_value(value, path, self._limits):
            metadata = _place(value.json) if violation.reason == "JSON_INVALID" else {}
            self._findings.report(violation, metadata)

    def _check_duration(self, message: Message, path: str) -> None:
        duration = cast("Duration", message)
        if not (0 <= duration.seconds <= MAX_DURATION_SECONDS and 0 <= duration.nanos < _NANOS):
            self._findings.add(path, "must be a duration that is not negative")

    def _check_timestamp(self, message: Message, path: str) -> None:
        timestamp = cast("Timestamp", message)
        in_range = MIN_TIMESTAMP_SECONDS <= timestamp.seconds <= MAX_TIMESTAMP_SECONDS
        if not (in_range and 0 <= timestamp.nanos < _NANOS):
            self._findings.add(path, "must be a time in the years 1 to 9999")


def stored_digests(message: Message) -> Iterator[str]:
    """Yield the digests of all stored values that a message refers to; what stands inside a graph is left out."""
    plan = _plan(message)
    if plan.full_name == _GRAPH:
        return
    if plan.full_name == _STORED:
        yield cast("value_pb2.StoredValue", message).digest
        return
    for descriptor, content in message.ListFields():
        field = plan.fields.get(descriptor.number)
        if field is not None and field.known is None:
            for inner, _ in _messages(content, field, ""):
                yield from stored_digests(inner)


def _place(text: str) -> Mapping[str, str]:
    """Return where a text stops being JSON."""
    try:
        json_text.parse(text)
    except json_text.JsonTextError as error:
        return {"line": str(error.line), "column": str(error.column)}
    return {}


def _messages(content: object, field: _Field, path: str) -> Iterable[tuple[Message, str]]:
    """Yield the messages that a field holds, each with its path."""
    if field.is_map:
        entries = cast("Mapping[object, Message]", content)
        return ((entries[key], f"{path}.{key}") for key in entries)
    if field.is_repeated:
        items = cast("Iterable[Message]", content)
        return ((item, f"{path}[{index}]") for index, item in enumerate(items))
    return ((cast("Message", content), path),)


# By descriptor: a process knows a bounded number of message types, so the plans need no eviction.
_PLANS: Final[dict[object, _Plan]] = {}


def _plan(message: Message) -> _Plan:
    descriptor = message.DESCRIPTOR
    plan = _PLANS.get(descriptor)
    if plan is None:
        # The implementation in C and the one in Python have a class each, with the same face.
        fields = cast("Iterable[FieldDescriptor]", descriptor.fields)
        found = {field.number: _plan_field(field) for field in fields}
        plan = _Plan(
            full_name=descriptor.full_name,
            fields={number: field for number, field in found.items() if field is not None},
            oneofs=tuple(
                (oneof.name, ", ".join(member.name for member in oneof.fields))
                for oneof in descriptor.oneofs
                # An `optional` field is a oneof of one member for the compiler only; its name begins with `_`.
                if oneof.full_name not in MAY_BE_UNSET and not oneof.name.startswith("_")
            ),
        )
        _PLANS[descriptor] = plan
    return plan


def _plan_field(field: FieldDescriptor) -> _Field | None:
    inner = field.message_type
    is_map = inner is not None and inner.GetOptions().map_entry
    held = inner.fields_by_number[2] if inner is not None and is_map else field
    if held.message_type is None and held.enum_type is None:
        return None
    numbers = None if held.enum_type is None else frozenset(held.enum_type.values_by_number)
    return _Field(name=field.name, is_repeated=field.is_repeated, is_map=is_map, known=numbers)
