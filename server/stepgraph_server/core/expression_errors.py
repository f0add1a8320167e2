"""What is wrong with an expression, in our words.

The CEL library reports errors as text, when it compiles and when it evaluates. This file is the one place that reads those
texts. A text that it does not know still becomes an error, with the library's words, and never a value.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from stepgraph_server.core.errors import StepgraphError
from stepgraph_server.core.expression_names import ROOTS, reach

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepgraph_server.core.expression_names import Names, Path

MAX_LISTED_NAMES: Final = 20
_MAX_SHOWN_CHARACTERS: Final = 200


class ExpressionCode(StrEnum):
    """What kind of thing is wrong."""

    SYNTAX = "SYNTAX"
    """It is not CEL, or uses a part of CEL that is not offered. Found when it is compiled."""
    TOO_LARGE = "TOO_LARGE"
    """The expression is too long, too deeply nested, or has too many parts. Found when it is compiled."""
    UNKNOWN_NAME = "UNKNOWN_NAME"
    """A root, a variable, a key, an index or a function does not exist."""
    TYPE = "TYPE"
    """An operation can't take the values that it was given, or a value has no place in JSON or CEL."""
    OVERFLOW = "OVERFLOW"
    """A number has no result or no place: beyond 64 bits, not finite, or divided by zero."""
    COST = "COST"
    """Evaluating it could take too long, or too much memory, with values of this size."""
    NOT_BOOL = "NOT_BOOL"
    """A condition gave something else than true or false."""


class ExpressionError(StepgraphError):
    """An expression can't be compiled or evaluated. Expected; the fault of the graph, or of the values it met.

    Attributes:
        code: What kind of thing is wrong.
        message: What is wrong, without the place.
        expression: The source, shortened if it is long.
        position: The character of the source, from 0; None if it can't be told.
        hint: What to do, or empty.
        name: The name that is wrong, if one is.
        known: The names that exist in its place, in order, at most `MAX_LISTED_NAMES` of them.
        known_count: How many there are.
    """

    def __init__(  # noqa: PLR0913  # the fields of one error, by keyword; most have a default
        self,
        *,
        code: ExpressionCode,
        message: str,
        expression: str,
        position: int | None = None,
        hint: str = "",
        name: str = "",
        known: Iterable[str] = (),
    ) -> None:
        names = sorted(known)
        self.code = code
        self.message = message
        self.expression = _shorten(expression)
        self.position = position
        self.hint = hint
        self.name = name
        self.known = tuple(names[:MAX_LISTED_NAMES])
        self.known_count = len(names)
        super().__init__(self._text())

    def _text(self) -> str:
        place = "" if self.position is None else f" at character {self.position}"
        more = self.known_count - len(self.known)
        listing = ", ".join(self.known) + (f" and {more} more" if more else "")
        exists = f"; there is {listing}" if self.known else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.code}: {self.message}{exists}{hint}, in `{self.expression}`{place}"


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else text[:_MAX_SHOWN_CHARACTERS] + "…"


# ---- what the library says when it compiles ----------------------------------------------------

_COMPILE_ERROR: Final = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_UNDECLARED: Final = re.compile(r"undeclared reference to '([^']*)'")
_NO_OVERLOAD: Final = re.compile(r"found no matching overload for '([^']*)' applied to '\((.*)\)'")
_ORDERING_HINT: Final = "convert one side: int(…), double(…) or string(…)"

FUNCTIONS: Final = [
    "all",
    "bool",
    "bytes",
    "contains",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "exists",
    "exists_one",
    "filter",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "has",
    "int",
    "map",
    "matches",
    "size",
    "startsWith",
    "string",
    "timestamp",
    "type",
    "uint",
]


def of_compiling(source: str, text: str) -> ExpressionError:
    """Explain why the library refused to compile a source."""
    if "recursion" in text:
        return ExpressionError(
            code=ExpressionCode.TOO_LARGE,
            message="nested too deeply; a chain of operators or fields counts as well",
            expression=source,
            hint="use fewer levels, or parentheses that balance a long chain",
        )
    found = _COMPILE_ERROR.search(text)
    if found is None:
        return ExpressionError(
            code=ExpressionCode.SYNTAX, message=_shorten(text), expression=source
        )
    position = _offset(source, int(found[1]), int(found[2]))
    message = found[3].removesuffix(" [INVALID_ARGUMENT]").removesuffix(" (in container '')")
    undeclared = _UNDECLARED.search(message)
    if undeclared is not None:
        return _undeclared(source, position, undeclared[1])
    overload = _NO_OVERLOAD.search(message)
    if overload is not None:
        return ExpressionError(
            code=ExpressionCode.TYPE,
            message=f"{_operator(overload[1])} can't take {overload[2]}",
            expression=source,
            position=position,
            hint=_ORDERING_HINT,
        )
    return ExpressionError(
        code=ExpressionCode.SYNTAX, message=_shorten(message), expression=source, position=position
    )


def _undeclared(source: str, position: int | None, name: str) -> ExpressionError:
    # The library points at the bracket of a call, and at the name otherwise.
    called = position is not None and source[position : position + 1] == "("
    known = FUNCTIONS if called else list(ROOTS)
    kind = "function" if called else "name"
    hint = closest(name.split(".", maxsplit=1)[0], known)
    if not called and not hint:
        hint = "variables are read as vars.<name>"
    return ExpressionError(
        code=ExpressionCode.UNKNOWN_NAME,
        message=f"there is no {kind} {_shorten(name)}",
        expression=source,
        position=position,
        hint=hint,
        name=_shorten(name),
        known=known,
    )


def _offset(source: str, line: int, column: int) -> int | None:
    if line < 1 or column < 1:
        return None
    before = source.split("\n")[: line - 1]
    return min(sum(len(text) + 1 for text in before) + column - 1, len(source))


def _operator(name: str) -> str:
    return (
        name.replace("_", "").removeprefix("@") if name.startswith(("_", "@", "-", "!")) else name
    )


def closest(name: str, known: Iterable[str]) -> str:
    """Suggest the known name that looks most like one, or nothing."""
    found = difflib.get_close_matches(name[:128], list(known)[:2_000], n=1)
    return f"did you mean {found[0]}?" if found else ""


# ---- what the library says when it evaluates ---------------------------------------------------

_MISSING_KEY: Final = re.compile(r"Key not found in map : (.*)", re.DOTALL)
_INDEX: Final = re.compile(r"Index error: index=(-?\d+) size=(\d+)")
_OVERLOADS: Final = re.compile(r"No matching overloads found : (.*)", re.DOTALL)
_NUMBERS: Final = ("overflow", "out of", "by zero", "range")


def of_evaluating(source: str, text: str, names: Names, data: dict[str, object]) -> ExpressionError:
    """Explain why an evaluation failed. The values it was given tell which path broke off, and what is there."""
    if "Iteration budget" in text:
        return ExpressionError(
            code=ExpressionCode.COST,
            message="it takes more than 10,000 iterations",
            expression=source,
        )
    missing = _MISSING_KEY.search(text)
    if missing is not None:
        return _missing_key(source, missing[1], names, data)
    index = _INDEX.search(text)
    if index is not None:
        return ExpressionError(
            code=ExpressionCode.UNKNOWN_NAME,
            message=f"there is no item {index[1]} in a list of {index[2]}",
            expression=source,
            name=index[1],
        )
    overloads = _OVERLOADS.search(text)
    if overloads is not None:
        return _no_overload(source, overloads[1])
    if "SELECT" in text:
        return _no_fields(source, names, data)
    message = _shorten(text.partition(": ")[2] or text)
    is_number = text.startswith("OUT_OF_RANGE") or any(word in text for word in _NUMBERS)
    code = ExpressionCode.OVERFLOW if is_number else ExpressionCode.TYPE
    return ExpressionError(code=code, message=message, expression=source)


def _no_overload(source: str, signature: str) -> ExpressionError:
    name, _, kinds = signature.partition("(")
    if "jump" in name or name in ("_&&_", "_||_", "!_"):
        message = "something else than true or false where one of them must stand"
        hint = "compare it, as in vars.x == 1"
    else:
        message = f"{_operator(name)} can't take {kinds.removesuffix(')')}"
        hint = _ORDERING_HINT
    return ExpressionError(code=ExpressionCode.TYPE, message=message, expression=source, hint=hint)


def _broken(names: Names, data: dict[str, object]) -> Iterable[tuple[Path, int, object]]:
    """List the paths that break off: the path, how many of its segments can be followed, and what is there."""
    for path in names.paths:
        for value, count in reach(data, path.segments):
            if count < len(path.segments):
                yield path, count, value


def _missing_key(
    source: str, quoted: str, names: Names, data: dict[str, object]
) -> ExpressionError:
    key = quoted.removeprefix('"').removesuffix('"')
    found = [
        (path, count, [str(name) for name in value])
        for path, count, value in _broken(names, data)
        if isinstance(value, dict) and str(path.segments[count]) == key
    ]
    if not found:
        # The key was computed, so what was looked at can't be told.
        message = f"there is no key {_shorten(key)}"
        return ExpressionError(
            code=ExpressionCode.UNKNOWN_NAME, message=message, expression=source, name=_shorten(key)
        )
    first, count, known = found[0]
    # Of the paths that break off here, the longest says most about what was meant.
    path = max((path for path, c, _ in found if c == count), key=lambda path: len(path.segments))
    return _unknown_key(source, replace(path, position=first.position), count, known)


def _unknown_key(source: str, path: Path, count: int, known: list[str]) -> ExpressionError:
    """Explain that a path has no key after its first `count` segments, where `known` is what is there."""
    key = str(path.segments[count])
    where = str(path.until(count))
    hint = closest(key, known)
    if where == "vars":
        dotted = f"{key}.{path.segments[count + 1]}" if len(path.segments) > count + 1 else ""
        hint = f'write vars["{dotted}"]' if dotted in known else hint
    return ExpressionError(
        code=ExpressionCode.UNKNOWN_NAME,
        message=f"{where} has no {_shorten(key)}",
        expression=source,
        position=path.position,
        hint=hint or f"has({_shorten(str(path.until(count + 1)))}) asks whether it is there",
        name=_shorten(key),
        known=known,
    )


def _no_fields(source: str, names: Names, data: dict[str, object]) -> ExpressionError:
    for path, count, value in _broken(names, data):
        if isinstance(path.segments[count], str) and not isinstance(value, dict):
            return ExpressionError(
                code=ExpressionCode.TYPE,
                message=f"{path.until(count)} is {kind_of(value)} and has no fields",
                expression=source,
                position=path.position,
                name=_shorten(str(path.segments[count])),
            )
    return ExpressionError(
        code=ExpressionCode.TYPE, message="a field is read of what has none", expression=source
    )


def kind_of(value: object) -> str:
    """Say what a value is."""
    match value:
        case None:
            return "null"
        case bool():
            return "a truth value"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case dict():
            return "an object"
        case bytes() | bytearray():
            return "bytes"
        case _:
            return "a time, a duration or a type"
