"""How writes to a variable come together.

Rules: what is written stays as it was spelled; only a sum is a new number. A reducer never guesses: a type that it is
not for is an error of whoever wrote it. All values in here have passed the checks of `values`.

Integers are exact at any size. A number with a fraction or an exponent counts as the double that it is read as, and a sum
with one is a double. MIN and MAX compare integers and doubles exactly; of equal numbers the one that was there first
stays, as it was spelled.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import graph_pb2
from stepgraph.v1 import value_pb2 as pb
from stepgraph_server.core import json_text
from stepgraph_server.core.errors import StepgraphError
from stepgraph_server.core.values import DEFAULT_LIMITS, ValueNotReadable, from_json, parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepgraph_server.core.json_text import JsonValue

_SPACE: Final = " \t\r\n"


class ReducerError(StepgraphError):
    """A write does not fit the reducer of its variable. Expected; fails the node that wrote, with REDUCER_TYPE.

    Attributes:
        variable: The variable; empty where the caller did not say.
        reducer: The name of the reducer, such as APPEND.
        message: What does not fit, without the names.
    """

    def __init__(self, variable: str, reducer: str, message: str) -> None:
        super().__init__(f"{variable or 'the variable'} ({reducer}): {message}")
        self.variable = variable
        self.reducer = reducer
        self.message = message


def reduce(
    reducer: int,
    base: pb.Value | None,
    write: pb.Value,
    *,
    variable: str = "",
    max_bytes: int = DEFAULT_LIMITS.max_inline_bytes,
) -> pb.Value:
    """Return what a variable holds after a write. `base` is what it held, None if it was not set.

    The result may be `base` or `write` itself; neither is changed.

    Raises:
        ReducerError: One of them is of a type that the reducer is not for, or the result is larger than `max_bytes`.
    """
    apply = _APPLY.get(reducer)
    if apply is None:
        # REPLACE and SINGLE. Two writers of a SINGLE variable are found where the branches of a superstep meet.
        return write
    try:
        result = apply(base, write)
    except (_MisfitError, ValueNotReadable, json_text.JsonTextError) as error:
        raise ReducerError(variable, _name(reducer), str(error)) from None
    size = len(result.json) if result.json.isascii() else len(result.json.encode())
    if size > max_bytes:
        message = f"it would have {size} bytes, of at most {max_bytes}"
        raise ReducerError(variable, _name(reducer), message)
    return result


class _MisfitError(Exception):
    """Becomes a ReducerError, which knows the names."""

    def __init__(self, *, message: str) -> None:
        super().__init__(message)


def _name(reducer: int) -> str:
    return graph_pb2.Reducer.DESCRIPTOR.values_by_number[reducer].name.removeprefix("REDUCER_")


def _append(base: pb.Value | None, write: pb.Value) -> pb.Value:
    """Extend a list, on its text: parsing and writing a long list for each item would take quadratic time."""
    held = "" if base is None else _list_items(base)
    if held is None:
        raise _MisfitError(message=f"what it holds is {_kind(base)}, not a JSON list")
    added = _list_items(write)
    if added is None:
        added = _item(write)
    if held and added:
        return pb.Value(json=f"[{held},{added}]")
    if base is not None and not added:
        return base
    return write if _list_items(write) is not None else pb.Value(json=f"[{added}]")


def _list_items(value: pb.Value | None) -> str | None:
    """Return the text between the brackets of a list; None if the value is no list."""
    if value is None or value.WhichOneof("kind") != "json":
        return None
    text = value.json.strip(_SPACE)
    return text[1:-1].strip(_SPACE) if text.startswith("[") else None


def _item(value: pb.Value) -> str:
    match value.WhichOneof("kind"):
        case "text":
            return json_text.dump(value.text)
        case "json":
            text = value.json
            # A list around it makes it deeper by one. Only what has so many brackets can be too deep then.
            if text.count("[") + text.count("{") >= json_text.MAX_DEPTH:
                json_text.parse(f"[{text}]")
            return text.strip(_SPACE)
        case _:
            raise _MisfitError(message=f"{_kind(value)} can't be an item of a JSON list")


def _sum(base: pb.Value | None, write: pb.Value) -> pb.Value:
    added = _number(write)
    if base is None:
        return write
    held = _number(base)
    try:
        total = held + added
    except OverflowError:
        raise _MisfitError(message="the sum is out of the range of a double") from None
    if isinstance(total, float) and not math.isfinite(total):
        raise _MisfitError(message="the sum is out of the range of a double")
    return from_json(total)


def _min(base: pb.Value | None, write: pb.Value) -> pb.Value:
    number = _number(write)
    return base if base is not None and _number(base) <= number else write


def _max(base: pb.Value | None, write: pb.Value) -> pb.Value:
    number = _number(write)
    return base if base is not None and _number(base) >= number else write


def _merge(base: pb.Value | None, write: pb.Value) -> pb.Value:
    added = _object(write)
    if base is None:
        return write
    held = _object(base)
    return from_json({**held, **added}) if added else base


def _number(value: pb.Value) -> int | float:
    number = _json(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise _MisfitError(message=f"{_kind(value)} is not a JSON number")
    return number


def _object(value: pb.Value) -> dict[str, JsonValue]:
    members = _json(value)
    if not isinstance(members, dict):
        raise _MisfitError(message=f"{_kind(value)} is not a JSON object")
    return members


def _json(value: pb.Value) -> JsonValue:
    if value.WhichOneof("kind") != "json":
        return None  # which no reducer takes
    return parse_json(value.json)


def _kind(value: pb.Value | None) -> str:
    kind = value.WhichOneof("kind") if value is not None else None
    if value is None or kind is None:
        return "the empty value"
    if kind != "json":
        return f"a {kind} value"
    match parse_json(value.json):
        case dict():
            return "a JSON object"
        case list():
            return "a JSON list"
        case bool() | None:
            return f"JSON {value.json.strip(_SPACE)}"
        case str():
            return "a JSON string"
        case _:
            return "a JSON number"


_APPLY: Final[Mapping[int, Callable[[pb.Value | None, pb.Value], pb.Value]]] = {
    graph_pb2.REDUCER_APPEND: _append,
    graph_pb2.REDUCER_SUM: _sum,
    graph_pb2.REDUCER_MIN: _min,
    graph_pb2.REDUCER_MAX: _max,
    graph_pb2.REDUCER_MERGE: _merge,
}
