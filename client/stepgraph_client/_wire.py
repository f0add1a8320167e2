"""Messages spliced from what was serialized before, so that nothing is serialized twice.

Rules: pure, and only what protobuf's encoding promises for ever: tags, varints and length-delimited fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from google.protobuf.message import Message

_SHORT: Final = tuple(bytes((number,)) for number in range(0x80))
_VARINT: Final = 0
_DELIMITED: Final = 2


def varint(number: int) -> bytes:
    """Encode a number of 0 or more."""
    if number < 0x80:
        return _SHORT[number]
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def tag(message: type[Message], field: str) -> bytes:
    """Encode what precedes the content of a field that is a message, text or bytes."""
    return varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | _DELIMITED)


def number_tag(message: type[Message], field: str) -> bytes:
    """Encode what precedes the content of a field that is an unsigned integer."""
    return varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | _VARINT)


def delimited(key: bytes, content: bytes) -> bytes:
    """Encode a field of a message, text or bytes."""
    return b"".join((key, varint(len(content)), content))


def repeated(key: bytes, items: Iterable[bytes]) -> bytes:
    """Encode a repeated field of messages, texts or bytes."""
    parts: list[bytes] = []
    for item in items:
        parts += (key, varint(len(item)), item)
    return b"".join(parts)


def batches(items: Sequence[bytes], limit: int) -> Iterator[Sequence[bytes]]:
    """Yield the items in runs of at most `limit` bytes; an item that is larger has a run of its own."""
    start = size = 0
    for index, item in enumerate(items):
        # The tag and the length of an item are at most six bytes together.
        if index > start and size + len(item) + 6 > limit:
            yield items[start:index]
            start, size = index, 0
        size += len(item) + 6
    if start < len(items):
        yield items[start:]
