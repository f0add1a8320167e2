"""Python values as Values of the schema, and back.

Rules: text is text, bytes are a blob, everything else is JSON. Integers stay exact at any size; what JSON does not have (NaN, a
cycle, an object of an unknown class) is refused and never bent into shape.
"""

from __future__ import annotations

import json
from typing import Final, TypeVar

from google.protobuf.message import Message
from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError, to_jsonable_python

from stepgraph.v1.value_pb2 import Blob, StoredValue, Value

T = TypeVar("T")

# Kept: `json.dumps` with these options would make one for every value.
_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=to_jsonable_python
)


def to_value(given: object) -> Value:
    """Return something as a Value: text, bytes, or JSON of whatever pydantic can write: models, dates, dataclasses.

    A Value is taken as it is, and a StoredValue as a reference. JSON text that is to stay as it is, is a `Value(json=…)`.

    Raises:
        ValueError: There is a NaN, an infinity or a cycle in it.
        TypeError: There is something in it that has no JSON.
    """
    match given:
        case Value():
            return given
        case StoredValue():
            return Value(stored=given)
        case str():
            return Value(text=given)
        case bytes() | bytearray():
            return Value(blob=Blob(media_type="application/octet-stream", data=bytes(given)))
        case Message():
            message = f"a {type(given).__name__} is not a value; write it as JSON first"
            raise TypeError(message)
        case _:
            return Value(json=_json(given))


def from_value(value: Value) -> object:
    """Return a Value as Python has it: a str, bytes, or what its JSON says; None for an empty one.

    Stored values and secrets come back as the references that they are; `Client.get_value` reads what is stored.

    Raises:
        TypeError: It is no Value.
    """
    _need_value(value)
    match value.WhichOneof("kind"):
        case "text":
            return value.text
        case "json":
            parsed: object = json.loads(value.json)
            return parsed
        case "blob":
            return value.blob.data
        case "stored":
            return value.stored
        case "secret":
            return value.secret
        case None:
            return None


def read_as(value: Value, kind: type[T]) -> T:
    """Return a Value as a pydantic model, a dataclass, or any other type that pydantic can check.

    Raises:
        pydantic.ValidationError: It is not of that kind.
        TypeError: It is no Value.
    """
    _need_value(value)
    adapter = TypeAdapter(kind)
    if value.WhichOneof("kind") == "json":
        return adapter.validate_json(value.json)
    return adapter.validate_python(from_value(value))


def _need_value(value: object) -> None:
    if not isinstance(value, Value):
        message = (
            f"expected a stepgraph.v1.Value, found a {type(value).__name__}: what Python has already needs no reading; "
            "to_value(…) makes a Value of it"
        )
        raise TypeError(message)


def _json(given: object) -> str:
    try:
        return _ENCODER.encode(given)
    except PydanticSerializationError as error:
        message = f"{type(given).__name__} can't be written as JSON: {error}"
        raise TypeError(message) from error
    except RecursionError as error:
        message = "it is nested too deep for JSON, or in itself"
        raise ValueError(message) from error
