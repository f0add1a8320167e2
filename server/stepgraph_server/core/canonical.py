"""Digests over a canonical form of our own.

Rules: two messages have one digest exactly if they have the same type and the same fields, with the same presence and
values. Fields count by number and maps by key, so renaming a field or the order in which a library writes things changes
nothing. Nothing here may use serialized messages: their bytes are not canonical. What can't be seen can't be digested, so
unknown fields are refused. The form is a promise: digests are stored and compared by later versions.

The form of a message is `{`, then its present fields by number as `<number>:<value>`, then `}`. A value is one of

    i<decimal>;          integers, enum values by number          b0 b1                booleans
    s<length>:<UTF-8>    text                                     y<length>:<bytes>    bytes
    d<8 bytes>           a double or float, IEEE 754, big-endian; every NaN is the same
    {…}                  a message                                [<values>]           a repeated field
    <<key><value>…>      a map, its entries sorted by the form of their keys

Each value says where it ends, so different messages never have one form.
"""

from __future__ import annotations

import hashlib
import math
import struct
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.unknown_fields import UnknownFieldSet

from stepgraph_server.core.errors import StepgraphError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.message import Message

    # Writes one value, of a message that is so deep in the outermost one.
    _Write: TypeAlias = Callable[[bytearray, object, int], None]
    # Of one message type, by field number: what precedes the value, and how to write it.
    _Plan: TypeAlias = dict[int, tuple[bytes, _Write]]

MAX_MESSAGE_DEPTH: Final = 100
"""How deep messages may be nested: what protobuf decoders accept too, and far from Python's recursion limit."""


class CanonicalError(StepgraphError):
    """A message has no canonical form. Expected on input of a newer peer; then it must be refused.

    Attributes:
        message_type: The full name of the message type that can't be written.
        reason: Why.
    """

    def __init__(self, *, message_type: str, reason: str) -> None:
        super().__init__(f"{message_type} {reason}")
        self.message_type = message_type
        self.reason = reason


def digest(message: Message) -> str:
    """Digest a message of any type: `sha256:` and 64 hexadecimal digits.

    Raises:
        CanonicalError: The message, or one inside it, has unknown fields, or is nested deeper than
            `MAX_MESSAGE_DEPTH`.
    """
    out = bytearray(message.DESCRIPTOR.full_name.encode())
    _write_message(out, message, 0)
    return digest_bytes(out)


def digest_text(text: str) -> str:
    """Digest a text, by its UTF-8."""
    return digest_bytes(text.encode())


def digest_bytes(content: bytes | bytearray | memoryview) -> str:
    """Digest bytes as they are."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _write_message(out: bytearray, value: object, depth: int) -> None:
    message: Message = value  # type: ignore[assignment]  # plans are made from descriptors, which say so
    if depth > MAX_MESSAGE_DEPTH:
        raise CanonicalError(
            message_type=message.DESCRIPTOR.full_name,
            reason=f"is nested deeper than {MAX_MESSAGE_DEPTH} messages",
        )
    if len(UnknownFieldSet(message)):
        raise CanonicalError(message_type=message.DESCRIPTOR.full_name, reason="has unknown fields")
    plan = _plan(message)
    out += b"{"
    # ListFields gives what is present, by number: set fields where presence is tracked, else what is not the default.
    for field, content in message.ListFields():
        entry = plan.get(field.number)
        if entry is None:
            raise CanonicalError(
                message_type=message.DESCRIPTOR.full_name,
                reason=f"has the extension {field.full_name}",
            )
        out += entry[0]
        entry[1](out, content, depth)
    out += b"}"


def _write_submessage(out: bytearray, value: object, depth: int) -> None:
    _write_message(out, value, depth + 1)


def _write_integer(out: bytearray, value: object, _: int) -> None:
    out += b"i%d;" % value  # type: ignore[str-format]  # a field of integers, by its descriptor


def _write_boolean(out: bytearray, value: object, _: int) -> None:
    out += b"b1" if value else b"b0"


def _write_text(out: bytearray, value: object, _: int) -> None:
    content = value.encode()  # type: ignore[attr-defined]  # a field of text, by its descriptor
    out += b"s%d:" % len(content)
    out += content


def _write_bytes(out: bytearray, value: object, _: int) -> None:
    content: bytes = value  # type: ignore[assignment]  # a field of bytes, by its descriptor
    out += b"y%d:" % len(content)
    out += content


_NAN: Final = b"d\x7f\xf8\x00\x00\x00\x00\x00\x00"


def _write_double(out: bytearray, value: object, _: int) -> None:
    number: float = value  # type: ignore[assignment]  # a field of doubles or floats, by its descriptor
    out += _NAN if math.isnan(number) else b"d" + struct.pack(">d", number)


_WRITERS: Final[dict[int, _Write]] = {
    FieldDescriptor.CPPTYPE_INT32: _write_integer,
    FieldDescriptor.CPPTYPE_INT64: _write_integer,
    FieldDescriptor.CPPTYPE_UINT32: _write_integer,
    FieldDescriptor.CPPTYPE_UINT64: _write_integer,
    FieldDescriptor.CPPTYPE_ENUM: _write_integer,
    FieldDescriptor.CPPTYPE_BOOL: _write_boolean,
    FieldDescriptor.CPPTYPE_STRING: _write_text,
    FieldDescriptor.CPPTYPE_DOUBLE: _write_double,
    FieldDescriptor.CPPTYPE_FLOAT: _write_double,
    FieldDescriptor.CPPTYPE_MESSAGE: _write_submessage,
}


def _list_of(write: _Write) -> _Write:
    def write_list(out: bytearray, value: object, depth: int) -> None:
        out += b"["
        for item in value:  # type: ignore[attr-defined]  # a repeated field, by its descriptor
            write(out, item, depth)
        out += b"]"

    return write_list


def _map_of(write_key: _Write, write_value: _Write) -> _Write:
    def write_map(out: bytearray, value: object, depth: int) -> None:
        entries: list[tuple[bytes, object]] = []
        for key, content in value.items():  # type: ignore[attr-defined]  # a map, by its descriptor
            name = bytearray()
            write_key(name, key, depth)
            entries.append((bytes(name), content))
        entries.sort(key=lambda entry: entry[0])  # keys differ, so values are never compared
        out += b"<"
        for form, item in entries:
            out += form
            write_value(out, item, depth)
        out += b">"

    return write_map


def _plan_field(field: FieldDescriptor) -> _Write:
    if field.type == FieldDescriptor.TYPE_BYTES:
        write: _Write = _write_bytes
    else:
        write = _WRITERS[field.cpp_type]
    if not field.is_repeated:
        return write
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return _map_of(
            _plan_field(entry.fields_by_number[1]), _plan_field(entry.fields_by_number[2])
        )
    return _list_of(write)


# By descriptor: a process knows a bounded number of message types, so the plans need no eviction.
_PLANS: Final[dict[object, _Plan]] = {}


def _plan(message: Message) -> _Plan:
    plan = _PLANS.get(message.DESCRIPTOR)
    if plan is None:
        fields = cast("Sequence[FieldDescriptor]", message.DESCRIPTOR.fields)  # or its twin in C
        plan = {f.number: (b"%d:" % f.number, _plan_field(f)) for f in fields}
        _PLANS[message.DESCRIPTOR] = plan
    return plan
