"""Scalars of a text as what a field of the schema takes, and trees as JSON text.

Rules: nothing is guessed. `3` is not text, "3" is not a number, and what does not fit says what was expected and
what was found.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import json
import re
from typing import TYPE_CHECKING, TypeAlias

from google.protobuf.descriptor import FieldDescriptor

from stepgraph_client.documents import Entries, Items, Kind, Part, Scalar
from stepgraph_client.shorthand import enum_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.descriptor import EnumDescriptor

Plain: TypeAlias = "str | int | float | bool | bytes"

#: How much of a text an error shows.
_SHOWN_CHARACTERS = 40

_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_INTEGER_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


class UnfitError(ValueError):
    """A part of a text does not fit its field. Expected; the message says what would."""


def converted(each: FieldDescriptor, part: Scalar) -> Plain:
    """Return what a scalar field gets.

    Raises:
        UnfitError: it is not what the field takes.
    """
    match each.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            return _bytes(part) if each.type == FieldDescriptor.TYPE_BYTES else _text(part)
        case FieldDescriptor.CPPTYPE_BOOL:
            if part.kind is not Kind.BOOLEAN:
                raise _unfit(each, part)
            return part.text.lower() == "true"
        case FieldDescriptor.CPPTYPE_ENUM:
            assert each.enum_type is not None, "it is an enum"
            return _enum(each.enum_type, part)
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            if part.kind not in {Kind.INTEGER, Kind.NUMBER}:
                raise _unfit(each, part)
            return float(part.text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
        case _:
            return _integer(each, part)


def _text(part: Scalar) -> str:
    if part.kind is Kind.TEXT:
        return part.text
    if part.kind is Kind.NULL:
        text = 'expected text, found nothing; leave the field out, or write ""'
        raise UnfitError(text)
    text = f'expected text, found {found(part)}; write "{part.text}" in quotes'
    raise UnfitError(text)


def _bytes(part: Scalar) -> bytes:
    try:
        return base64.b64decode(part.text, validate=True)
    except binascii.Error as error:
        text = f"expected bytes in base64, found {found(part)}"
        raise UnfitError(text) from error


def _integer(each: FieldDescriptor, part: Scalar) -> int:
    low, high = _INTEGER_RANGES[each.cpp_type]
    # JSON writes integers of 64 bits as text.
    as_text = part.kind is Kind.TEXT and high > 2**32 and re.fullmatch(r"-?[0-9]+", part.text)
    if part.kind is not Kind.INTEGER and not as_text:
        raise _unfit(each, part)
    number = _int_of(part.text)
    if not low <= number <= high:
        text = f"expected an integer from {low} to {high}, found {number}"
        raise UnfitError(text)
    return number


def _int_of(text: str) -> int:
    digits = text.replace("_", "").lower()
    # A bare 010 is ten in YAML 1.2; Python would refuse it with base 0.
    return int(digits, 0) if re.match(r"[-+]?0[xob]", digits) else int(digits, 10)


def _enum(descriptor: EnumDescriptor, part: Scalar) -> int:
    prefix = enum_prefix(descriptor)
    names = {
        each.name.removeprefix(prefix).lower(): each.number
        for each in descriptor.values
        if each.number
    }
    wanted = part.text.removeprefix(prefix).lower()
    if part.kind is Kind.TEXT and wanted in names:
        return names[wanted]
    close = difflib.get_close_matches(wanted, names, n=1, cutoff=0.6)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    text = f"expected one of {listed(names)}, found {found(part)}{hint}"
    raise UnfitError(text)


def json_of(part: Part) -> str:
    """Return a tree as JSON text, every number as it was written.

    Raises:
        UnfitError: a key is there twice, or a number is none in JSON.
    """
    match part:
        case Entries():
            keys = [key.text for key, _ in part.entries]
            if len(set(keys)) < len(keys):
                twice = next(each for each in keys if keys.count(each) > 1)
                text = f"{twice!r} is there twice; keep one"
                raise UnfitError(text)
            pairs = (f"{_quoted(key.text)}: {json_of(value)}" for key, value in part.entries)
            return "{" + ", ".join(pairs) + "}"
        case Items():
            return "[" + ", ".join(json_of(each) for each in part.items) + "]"
        case Scalar():
            return _json_scalar(part)


def _json_scalar(part: Scalar) -> str:
    match part.kind:
        case Kind.TEXT:
            return _quoted(part.text)
        case Kind.NULL:
            return "null"
        case Kind.BOOLEAN:
            return part.text.lower()
        case Kind.INTEGER if not _JSON_NUMBER.fullmatch(part.text):
            return str(_int_of(part.text))
        case Kind.INTEGER | Kind.NUMBER:
            if _JSON_NUMBER.fullmatch(part.text):
                return part.text
            text = f"{part.text} is not a number of JSON; write it as 0.5, 12 or 1e3"
            raise UnfitError(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _unfit(each: FieldDescriptor, part: Scalar) -> UnfitError:
    return UnfitError(f"expected {wanted_of(each)}, found {found(part)}")


def wanted_of(each: FieldDescriptor) -> str:
    """Return in words what a scalar field takes."""
    match each.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            return "text"
        case FieldDescriptor.CPPTYPE_BOOL:
            return "true or false"
        case FieldDescriptor.CPPTYPE_ENUM:
            return "a name"
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return "a number"
        case _:
            return "an integer"


def found(part: Part) -> str:
    """Return in words what stands there."""
    match part:
        case Entries():
            return "a mapping"
        case Items():
            return "a list"
        case Scalar(kind=Kind.NULL):
            return "nothing"
        case Scalar(kind=Kind.TEXT):
            shown = (
                part.text
                if len(part.text) <= _SHOWN_CHARACTERS
                else f"{part.text[:_SHOWN_CHARACTERS]}…"
            )
            return f"the text {shown!r}"
        case Scalar():
            return (
                f"{part.kind.value} ({part.text})" if part.kind is not Kind.BOOLEAN else part.text
            )


def listed(names: Iterable[str]) -> str:
    """Return names of the schema as one text."""
    # Only the schema's own spelling: the camelCase twins would double every list.
    return ", ".join(dict.fromkeys(each for each in names if each == each.lower()))
