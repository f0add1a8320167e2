"""Protobuf's wire format, as far as it takes to carry messages without parsing them.

Rules: only what the encoding promises for ever: tags, varints and length-delimited fields. What was serialized once is
spliced into what contains it; re-encoding a conversation for each task would cost more than all else that a node costs.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from stepgraph_server.core.errors import StepgraphError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

VARINT: Final = 0
FIXED64: Final = 1
LENGTH_DELIMITED: Final = 2
FIXED32: Final = 5

_SHORT: Final = tuple(bytes((number,)) for number in range(0x80))
_MAX_VARINT_BYTES: Final = 10


class WireError(StepgraphError):
    """Bytes are not a protobuf message. Unexpected where we wrote them; expected of a peer's.

    Attributes:
        offset: Where reading stopped.
    """

    def __init__(self, *, message: str, offset: int) -> None:
        super().__init__(f"{message} at byte {offset}")
        self.offset = offset


class Field(NamedTuple):
    """One field as it stands in the bytes.

    Attributes:
        number: The field's number.
        wire_type: How it is encoded.
        content: The bytes of a length-delimited or fixed field; the number of a varint.
    """

    number: int
    wire_type: int
    content: bytes | int


def varint(number: int) -> bytes:
    """Encode a number of 0 or more."""
    if number < 0x80:
        return _SHORT[number]
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


# Field numbers are written in our code, never read from input, so the cache is as small as the schema.
@cache
def tag(field_number: int, wire_type: int = LENGTH_DELIMITED) -> bytes:
    """Encode what precedes a field's content."""
    return varint(field_number << 3 | wire_type)


def length_prefix(field_number: int, size: int) -> bytes:
    """Encode what precedes the content of a message, text or bytes field of `size` bytes."""
    return tag(field_number) + varint(size)


def length_delimited(field_number: int, data: bytes) -> bytes:
    """Encode a field that holds a message, text or bytes."""
    return tag(field_number) + varint(len(data)) + data


def varint_field(field_number: int, number: int) -> bytes:
    """Encode a field that holds an unsigned integer, an enum value or a boolean."""
    return tag(field_number, VARINT) + varint(number)


def join_repeated(field_number: int, items: Iterable[bytes]) -> bytes:
    """Encode a repeated field of messages, texts or bytes."""
    key = tag(field_number)
    parts: list[bytes] = []
    for item in items:
        parts += (key, varint(len(item)), item)
    return b"".join(parts)


def fields(data: bytes) -> Iterator[Field]:
    """Yield the top-level fields of a message, in the order of the bytes.

    Raises:
        WireError: The bytes are cut off, or hold a wire type that proto3 does not use.
    """
    at = 0
    end = len(data)
    while at < end:
        key, at = _read_varint(data, at)
        wire_type = key & 7
        number = key >> 3
        if number == 0:
            raise WireError(message="a field has the number 0", offset=at)
        if wire_type == VARINT:
            value, at = _read_varint(data, at)
            yield Field(number, wire_type, value)
            continue
        if wire_type == LENGTH_DELIMITED:
            size, at = _read_varint(data, at)
        elif wire_type == FIXED64:
            size = 8
        elif wire_type == FIXED32:
            size = 4
        else:
            raise WireError(message=f"wire type {wire_type} is not used by proto3", offset=at)
        if size > end - at:
            raise WireError(message=f"field {number} is cut off", offset=at)
        yield Field(number, wire_type, data[at : at + size])
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for index in range(_MAX_VARINT_BYTES):
        if at + index >= len(data):
            raise WireError(message="a number is cut off", offset=at)
        byte = data[at + index]
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, at + index + 1
    raise WireError(message="a number is longer than 10 bytes", offset=at)
