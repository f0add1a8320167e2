"""Python values as Values of the schema, and back."""

from __future__ import annotations

import json

from pydantic import BaseModel

from stepgraph.v1.value_pb2 import Blob, Value


def to_value(given: object) -> Value:
    """Return something as a Value."""
    match given:
        case Value():
            return given
        case str():
            return Value(text=given)
        case bytes():
            return Value(blob=Blob(media_type="application/octet-stream", data=given))
        case BaseModel():
            return Value(json=given.model_dump_json())
        case _:
            return Value(json=json.dumps(given, ensure_ascii=False, allow_nan=False))


def from_value(value: Value) -> object:
    """Return a Value as Python has it."""
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
        case _:
            return None
