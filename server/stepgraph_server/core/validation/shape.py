"""What the schema itself demands of every message, wherever it stands.

Rules: this walks descriptors and knows no message by its meaning, except the few that are listed. What this server does not
know is refused, never skipped: a graph of a newer client must not be walked as if half of it were not there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.unknown_fields import UnknownFieldSet

from stepgraph_server.core.canonical import MAX_MESSAGE_DEPTH
from stepgraph_server.core.validation.codes import ProblemCode
from stepgraph_server.core.validation.report import at_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stepgraph_server.core.validation.report import Report

#: Their oneof may be unset, which then means something.
_MAY_BE_UNSET: Final = frozenset({"stepgraph.v1.ToolChoice"})
_MAX_SECONDS: Final = 315_576_000_000  # ten thousand years, as in google.protobuf.Duration
_MIN_TIMESTAMP: Final = -62_135_596_800  # the year 1
_MAX_TIMESTAMP: Final = 253_402_300_799  # the end of the year 9999
_NANOS: Final = 1_000_000_000
_NANOS_PER_MICROSECOND: Final = 1_000
_DOUBLES: Final = frozenset({FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT})


def check_shape(report: Report, path: str, message: Message) -> bool:
    """Report unknown fields, variants and enum values, numbers that are none, and times that are out of range.

    Returns whether all of it was looked at, which fails only if it is too deep.
    """
    # Not recursive: a message that was built in this process may be deeper than any that was parsed.
    open_: list[tuple[str, Message, int]] = [(path, message, 1)]
    while open_:
        place, current, depth = open_.pop()
        if depth > MAX_MESSAGE_DEPTH:
            report.problem(
                ProblemCode.TOO_DEEP,
                place,
                f"messages are nested deeper than {MAX_MESSAGE_DEPTH} levels",
                "Register the inner graphs and refer to them.",
            )
            return False
        _check_message(report, place, current)
        inner: list[tuple[str, Message, int]] = []
        for field, value in current.ListFields():
            where = f"{place}.{field.name}" if place else field.name
            for item_path, item in _items(where, field, value):
                if isinstance(item, Message):
                    inner.append((item_path, item, depth + 1))
                else:
                    _check_scalar(report, item_path, field, item)
        open_.extend(reversed(inner))
    return True


def _items(path: str, field: FieldDescriptor, value: object) -> Iterator[tuple[str, object]]:
    """Return the values of a field with their paths; of texts, which can't be wrong here, none."""
    if not field.is_repeated:
        yield path, value
        return
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        content = entry.fields_by_name["value"]
        if content.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return
        members: Mapping[str, object] = value  # type: ignore[assignment]  # a map, by its descriptor
        for key in sorted(members):
            yield at_key(path, key), members[key]
        return
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return
    items: Sequence[object] = value  # type: ignore[assignment]  # a list, by its descriptor
    for index, item in enumerate(items):
        yield f"{path}[{index}]", item


def _check_message(report: Report, path: str, message: Message) -> None:
    if isinstance(message, Duration):
        _check_duration(report, path, message)
    elif isinstance(message, Timestamp):
        _check_timestamp(report, path, message)
    unknown = _unknown_numbers(message)
    descriptor = message.DESCRIPTOR
    unset = [
        oneof.name
        for oneof in descriptor.oneofs
        # The oneof of an `optional` field is an artefact of how presence is tracked; its name starts with `_`.
        if not oneof.name.startswith("_")
        and descriptor.full_name not in _MAY_BE_UNSET
        and message.WhichOneof(oneof.name) is None
    ]
    if unset and unknown:
        numbers = ", ".join(map(str, unknown))
        text = f"its variant (field {numbers}) is not known to this server"
        report.problem(ProblemCode.UNKNOWN_VARIANT, path, text, "Upgrade the server.")
    elif unset:
        known = ", ".join(field.name for field in descriptor.oneofs_by_name[unset[0]].fields)
        text = "no variant is set"
        report.problem(ProblemCode.UNKNOWN_VARIANT, path, text, f"Set one of {known}.")
    elif unknown:
        numbers = ", ".join(map(str, unknown))
        text = f"field {numbers} of {descriptor.name} is not known to this server"
        report.problem(ProblemCode.UNKNOWN_FIELD, path, text, "Upgrade the server.")


def _unknown_numbers(message: Message) -> list[int]:
    fields = UnknownFieldSet(message)
    # The stubs know the length and the indexes of a set, not that it can be iterated.
    return sorted({fields[index].field_number for index in range(len(fields))})


def _check_scalar(report: Report, path: str, field: FieldDescriptor, value: object) -> None:
    if field.message_type is not None:  # a map's entry
        field = field.message_type.fields_by_name["value"]
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        enum = field.enum_type
        if enum is not None and value not in enum.values_by_number:
            names = ", ".join(entry.name for entry in enum.values[1:])
            text = f"{value} is not a value of {enum.name} that this server knows"
            report.problem(ProblemCode.UNKNOWN_VARIANT, path, text, f"Use one of {names}.")
    elif field.cpp_type in _DOUBLES and isinstance(value, float) and not math.isfinite(value):
        report.problem(ProblemCode.OUT_OF_RANGE, path, f"must be a finite number, not {value}")


def _check_duration(report: Report, path: str, duration: Duration) -> None:
    seconds, nanos = duration.seconds, duration.nanos
    if seconds < 0 or nanos < 0:
        report.problem(ProblemCode.OUT_OF_RANGE, path, "a duration can't be negative")
    elif seconds > _MAX_SECONDS or nanos >= _NANOS:
        report.problem(ProblemCode.OUT_OF_RANGE, path, "not a valid google.protobuf.Duration")
    elif seconds == 0 and 0 < nanos < _NANOS_PER_MICROSECOND:
        # It would be cut to 0, which means something else.
        report.problem(ProblemCode.OUT_OF_RANGE, path, "a duration is 0, or at least a microsecond")


def _check_timestamp(report: Report, path: str, timestamp: Timestamp) -> None:
    if not (
        _MIN_TIMESTAMP <= timestamp.seconds <= _MAX_TIMESTAMP and 0 <= timestamp.nanos < _NANOS
    ):
        report.problem(ProblemCode.OUT_OF_RANGE, path, "not a valid google.protobuf.Timestamp")
