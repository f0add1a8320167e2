"""JSON as text: what is read is written back with the same digits.

The rules of this file:

- A number never changes silently. Integers are exact, and a fraction remembers how it was spelled.
- What one reader could take differently from the next is refused: NaN, infinities, lone surrogates, duplicate keys.
- No input crashes or exhausts the process: size, depth and the length of numbers are bounded, and nothing recurses on input.
- The careful reader decides. The fast path accepts only what the careful one does, with the same value.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]  # typeshed leaves the C function out
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from stepgraph_server.core.errors import StepgraphError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

MAX_DEPTH: Final = 64
"""How many arrays and objects may be open at once."""

MAX_NUMBER_CHARACTERS: Final = 4_300
"""The longest number, in characters. Reading a decimal integer takes quadratic time, so its length must be bounded."""


class JsonTextError(StepgraphError):
    """A text is not JSON that we take, or a value has no JSON text. Expected; the fault of whoever sent it.

    Attributes:
        message: What is wrong, without the place.
        path: Where in the value, such as `$.items[3].name`.
        line: Where in the text, from 1; 0 if the error is about a value that was to be written.
        column: Where in the line, from 1, in characters; 0 as for `line`.
    """

    def __init__(self, *, message: str, path: str = "$", line: int = 0, column: int = 0) -> None:
        place = f" at {path}" + (f" (line {line}, column {column})" if line else "")
        super().__init__(message + place)
        self.message = message
        self.path = path
        self.line = line
        self.column = column


class JsonFloat(float):
    """A number with a fraction or an exponent that remembers its spelling, such as `0.10` or `1e308`.

    Used where `repr` of the float would differ; arithmetic gives ordinary floats.
    """

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        """Read the number from its spelling."""
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __repr__(self) -> str:
        return self.text

    def __getnewargs__(self) -> tuple[str]:  # type: ignore[override]  # copies are made from the spelling
        return (self.text,)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLimits:
    """What a text may cost.

    Attributes:
        max_bytes: The size of the text in UTF-8.
        max_depth: How many arrays and objects may be open at once; at most `MAX_DEPTH`.
    """

    max_bytes: int = 1024 * 1024
    max_depth: int = MAX_DEPTH


DEFAULT_LIMITS: Final = JsonLimits()


def parse(text: str, limits: JsonLimits = DEFAULT_LIMITS) -> JsonValue:
    """Read one JSON value.

    Raises:
        JsonTextError: The text is not JSON, is over a limit, or holds what readers would take differently.
    """
    if len(text) * 4 > limits.max_bytes and _size_bytes(text) > limits.max_bytes:
        raise JsonTextError(
            message=f"the JSON text has {_size_bytes(text)} bytes, of at most {limits.max_bytes}"
        )
    if _is_plain(text):
        decoder = _DECODER if "-0" not in text else _ZERO_DECODER
        try:
            value = cast("JsonValue", decoder.decode(text))  # json is typed as Any
        except (ValueError, RecursionError):
            # The careful reader finds the same fault and says where it is. The C scanner recurses, but counts its
            # depth: input that is too deep for it raises and never overflows the stack.
            return _Reader(text, limits).read()
        # Fewer brackets than levels can't be too deep. Otherwise the levels are counted on the value.
        if text.count("[") + text.count("{") <= limits.max_depth or not is_deeper_than(
            value, limits.max_depth
        ):
            return value
    return _Reader(text, limits).read()


def dump(value: JsonValue) -> str:
    """Write a value as compact JSON text; characters outside ASCII stay as they are.

    Raises:
        JsonTextError: The value is deeper than `MAX_DEPTH`, or holds what JSON does not: NaN, an infinity, a lone
            surrogate, a key or a value of another type.
    """
    return _write(_dump, value)


def canonical(value: JsonValue) -> str:
    """Write a value so that equal values give equal texts: for comparing and for digests, not for people.

    Keys are sorted by code point. Numbers are compared as decimals, by what their text says: 3, 3.0 and 30e-1 are
    equal, 9007199254740993 and 9007199254740992.0 are not, although a double could not tell them apart.

    Raises:
        JsonTextError: As for `dump`.
    """
    return _write(_canonical, value)


def is_deeper_than(value: JsonValue, max_depth: int) -> bool:
    """Tell whether more arrays and objects than `max_depth` hold each other.

    It counts level by level, so a value of any depth is safe.
    """
    level: list[list[JsonValue] | dict[str, JsonValue]] = (
        [value] if isinstance(value, (dict, list)) else []
    )
    for _ in range(max_depth):
        below: list[list[JsonValue] | dict[str, JsonValue]] = []
        for container in level:
            members = container.values() if type(container) is dict else container
            below.extend([item for item in members if type(item) is dict or type(item) is list])
        if not below:
            return False
        level = below
    return bool(level)


def _size_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


# ---- the fast path: the C scanner of the standard library, with hooks where it is laxer than we are -----------------
#
# orjson was measured at four times this speed, but takes the last of two equal keys, turns integers above 64 bits into
# doubles and forgets how a fraction was spelled; proving that none of this matters costs what it saves.

_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_LONG_NUMBER: Final = re.compile(rf"[0-9]{{{MAX_NUMBER_CHARACTERS}}}")


def _is_plain(text: str) -> bool:
    """Whether nothing in a text needs the careful reader: surrogates, or digits near the limit of the interpreter."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    if "\\u" in text and _SURROGATE_ESCAPE.search(text):
        return False
    return len(text) < MAX_NUMBER_CHARACTERS or not _LONG_NUMBER.search(text)


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError(pairs)
    return members


def _fraction(text: str) -> float:
    number = float(text)
    if math.isinf(number) or len(text) > MAX_NUMBER_CHARACTERS:
        raise ValueError(text)
    return number if repr(number) == text else JsonFloat(text)


def _integer(text: str) -> int | float:
    # An int can't be minus zero, and "-0" must come back as "-0".
    return JsonFloat(text) if text == "-0" else int(text)


def _constant(text: str) -> float:
    raise ValueError(text)


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_fraction, parse_constant=_constant
)
_ZERO_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_fraction, parse_int=_integer, parse_constant=_constant
)


# ---- the careful reader: slower, without recursion, and it knows where it is ----------------------------------------

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<fraction>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_WORD: Final = re.compile(r"-?[A-Za-z]+")
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Reader:
    """Reads one text with an explicit stack. `_open` holds the containers that are not closed yet, outermost first."""

    def __init__(self, text: str, limits: JsonLimits) -> None:
        self._text = text
        self._limits = limits
        self._at = 0
        self._open: list[list[JsonValue] | dict[str, JsonValue]] = []
        self._keys: list[
            str | None
        ] = []  # of each open object, the key whose value is being read; None before it

    def read(self) -> JsonValue:
        while True:
            value = self._value()
            if isinstance(value, (dict, list)) and self._open and self._open[-1] is value:
                continue  # a container was opened and has a first member
            while self._open:
                self._add(value)
                if not self._ends():
                    break
                value = self._close()
            else:
                self._skip()
                if self._at < len(self._text):
                    raise self._error(message="something follows the value")
                return value

    def _value(self) -> JsonValue:
        """Read a scalar or an empty container, or open one that has members and stop before its first value."""
        self._skip()
        first = self._text[self._at : self._at + 1]
        if first == '"':
            return self._string()
        if first in ("{", "["):
            return self._enter(first)
        number = _NUMBER.match(self._text, self._at)
        if number is not None:
            return self._number(number)
        word = _WORD.match(self._text, self._at)
        if word is not None and word.group() in _WORDS:
            self._at = word.end()
            return _WORDS[word.group()]
        if word is not None:
            raise self._error(message=f"{word.group()[:20]} is not JSON")
        raise self._error(
            message=f"{first!r} does not start a value" if first else "a value is missing"
        )

    def _enter(self, bracket: str) -> JsonValue:
        if len(self._open) >= self._limits.max_depth:
            raise self._error(message=f"nested deeper than {self._limits.max_depth} levels")
        container: list[JsonValue] | dict[str, JsonValue] = {} if bracket == "{" else []
        self._at += 1
        self._skip()
        if self._text[self._at : self._at + 1] == ("}" if bracket == "{" else "]"):
            self._at += 1
            return container
        self._open.append(container)
        self._keys.append(None)
        if isinstance(container, dict):
            self._key(container)
        return container

    def _key(self, container: dict[str, JsonValue]) -> None:
        self._keys[-1] = None
        self._skip()
        if self._text[self._at : self._at + 1] != '"':
            raise self._error(message="a key in quotes is missing")
        start = self._at
        key = self._string()
        self._keys[-1] = key
        if key in container:
            raise self._error(message=f"the key {_shorten(key)} occurs twice", at=start)
        self._skip()
        if self._text[self._at : self._at + 1] != ":":
            raise self._error(message="a ':' is missing")
        self._at += 1

    def _add(self, value: JsonValue) -> None:
        container = self._open[-1]
        if isinstance(container, dict):
            container[self._keys[-1] or ""] = value
        else:
            container.append(value)

    def _ends(self) -> bool:
        """Read what follows a member: whether its container ends here, or another member comes."""
        container = self._open[-1]
        closer = "}" if isinstance(container, dict) else "]"
        self._skip()
        mark = self._text[self._at : self._at + 1]
        if mark not in (",", closer):
            raise self._error(message=f"a ',' or {closer!r} is missing")
        self._at += 1
        if mark == closer:
            return True
        if isinstance(container, dict):
            self._key(container)
        return False

    def _close(self) -> JsonValue:
        self._keys.pop()
        return self._open.pop()

    def _string(self) -> str:
        start = self._at
        try:
            value, self._at = cast(
                "tuple[str, int]", scanstring(self._text, start + 1)
            )  # untyped C
        except json.JSONDecodeError as error:
            raise self._error(
                message=f"the string is broken: {error.msg.lower().removesuffix(' at')}",
                at=error.pos,
            ) from None
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self._error(
                message="the string holds half of a surrogate pair", at=start
            ) from None
        return value

    def _number(self, match: re.Match[str]) -> JsonValue:
        text = match.group()
        if len(text) > MAX_NUMBER_CHARACTERS:
            raise self._error(
                message=f"the number has more than {MAX_NUMBER_CHARACTERS} characters"
            )
        try:
            number = _fraction(text) if match.group("fraction") else _integer(text)
        except ValueError:
            raise self._error(message=f"the number {_shorten(text)} is out of range") from None
        self._at = match.end()
        return number

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        assert match is not None, "nothing is space enough"
        self._at = match.end()

    def _error(self, *, message: str, at: int | None = None) -> JsonTextError:
        place = self._at if at is None else at
        line = self._text.count("\n", 0, place) + 1
        column = place - self._text.rfind("\n", 0, place)
        return JsonTextError(message=message, path=self._path(), line=line, column=column)

    def _path(self) -> str:
        parts = [
            _segment(key) if isinstance(container, dict) else f"[{len(container)}]"
            for container, key in zip(self._open, self._keys, strict=True)
        ]
        return "$" + "".join(parts if len(parts) <= 16 else [*parts[:8], "…", *parts[-8:]])


def _segment(key: str | None) -> str:
    if key is None:
        return ""
    return f".{key}" if len(key) <= 40 and _PLAIN_KEY.fullmatch(key) else f"[{_shorten(key)}]"


def _shorten(text: str) -> str:
    quoted = json.dumps(
        text
    )  # escaped, so that an error's text never holds the half of a pair it complains of
    return quoted if len(quoted) <= 42 else quoted[:40] + '…"'


# ---- the writer ------------------------------------------------------------------------------

_quote = json.encoder.encode_basestring


def _write(write: Callable[[object, int], str], value: object) -> str:
    try:
        text = write(value, MAX_DEPTH)
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        raise JsonTextError(message="a string holds half of a surrogate pair") from None
    except TypeError:  # of the C function that quotes keys
        raise JsonTextError(message="a key of an object is not text") from None
    return text


def _dump(value: object, depth: int) -> str:
    """Write a value that may be `depth` levels deep.

    It recurses, to at most `MAX_DEPTH` levels, and builds a text per container, since an explicit
    stack and one list of parts took twice as long.
    """
    if type(value) is str:
        return _quote(value)
    if type(value) is dict and depth > 0:
        members = [
            _quote(key) + ":" + (_quote(item) if type(item) is str else _dump(item, depth - 1))
            for key, item in value.items()
        ]
        return "{" + ",".join(members) + "}"
    if type(value) is list and depth > 0:
        return "[" + ",".join([_dump(item, depth - 1) for item in value]) + "]"
    return (
        _number_text(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else _scalar(value)
    )


def _canonical(value: object, depth: int) -> str:
    if type(value) is dict and depth > 0:
        if not all(type(key) is str for key in value):
            raise TypeError
        members = [_quote(key) + ":" + _canonical(value[key], depth - 1) for key in sorted(value)]
        return "{" + ",".join(members) + "}"
    if type(value) is list and depth > 0:
        return "[" + ",".join([_canonical(item, depth - 1) for item in value]) + "]"
    return (
        _canonical_number(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else _scalar(value)
    )


def _scalar(value: object) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    if value is None:
        return "null"
    if type(value) is str:
        return _quote(value)
    if isinstance(value, (dict, list)):
        raise JsonTextError(message=f"nested deeper than {MAX_DEPTH} levels")
    raise JsonTextError(message=f"a {type(value).__name__} has no JSON text")


def _number_text(number: float) -> str:
    """Spell a number as it came, or as Python does if it was computed."""
    if isinstance(number, JsonFloat):
        return number.text
    if not isinstance(number, int):
        if not math.isfinite(number):
            raise JsonTextError(message=f"{number} has no JSON text")
        return float.__repr__(number)
    try:
        return int.__repr__(number)
    except ValueError:
        raise JsonTextError(
            message=f"the number has more than {MAX_NUMBER_CHARACTERS} characters"
        ) from None


_PARTS: Final = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")


def _canonical_number(number: float) -> str:
    """Spell a number by its decimal value: the same for 3, 3.0, 30e-1, and for 0.1 and 0.10."""
    text = _number_text(number)
    if isinstance(number, int):
        return text
    match = _PARTS.fullmatch(text)
    assert match is not None, "numbers are spelled by this file and by Python"
    sign, whole, fraction, exponent = match.groups(default="")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "0"
    point = int(exponent or "0") - len(fraction)  # the value is digits · 10^point
    stripped = digits.rstrip("0")
    point += len(digits) - len(stripped)
    if point >= 0 and len(stripped) + point <= MAX_NUMBER_CHARACTERS:
        return sign + stripped + "0" * point
    if len(stripped) + point > -6 and point < 0:
        padded = stripped.rjust(1 - point, "0")
        return f"{sign}{padded[:point]}.{padded[point:]}"
    return f"{sign}{stripped}e{point}"
