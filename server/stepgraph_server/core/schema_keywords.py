"""How `jsonschema` checks for us: its keywords, counted, and those of them that we can't take as they are.

Rules: each keyword that is applied is paid for before it is applied, by what it may cost. Without that, a small schema
can ask for any amount of work: references that fan out, long enumerations tried on long lists, equality of large values.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from stepgraph_server.core import json_text
from stepgraph_server.core.errors import StepgraphError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from jsonschema.protocols import Validator

    from stepgraph_server.core.json_text import JsonValue
    from stepgraph_server.core.schema_patterns import Pattern

    class _Validator(Protocol):
        """What our keywords need of a validator."""

        def descend(
            self, instance: object, schema: object, path: object = ..., schema_path: object = ...
        ) -> Iterator[ValidationError]: ...

    # Applies a keyword: validator, what the keyword says, the value, and the schema around the keyword.
    _Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]

MAX_STEPS: Final = 100_000
"""The work of one check, in applied keywords or what costs as much; below a second."""

_CHARACTERS_PER_STEP: Final = 256


class WorkLimitError(StepgraphError):
    """A check was given up. Expected of schemas that fan out, on values that are large."""

    def __init__(self) -> None:
        super().__init__(f"checking takes more than {MAX_STEPS} steps")


@dataclass(slots=True, kw_only=True)
class Work:
    """One check while it is done.

    Attributes:
        patterns: The compiled patterns of the schema.
        weights: What comparing with a `const` or `enum` may cost.
        steps_left: How much more may be done.
    """

    patterns: Mapping[str, Pattern]
    weights: Mapping[int, int]
    steps_left: int = MAX_STEPS

    def spend(self, steps: int) -> None:
        """Pay for some work. Raises WorkLimitError if there is nothing left to pay with."""
        self.steps_left -= steps
        if self.steps_left < 0:
            raise WorkLimitError


# jsonschema calls keywords with what it has and builds validators of its own on the way, so this is the only way to
# hand them something that belongs to one check.
WORK: Final[ContextVar[Work]] = ContextVar("stepgraph_schema_work")


def _price(keyword: str, said: object, value: object, work: Work) -> int:
    if keyword in ("const", "enum"):
        # Only lists and objects take long to compare, and no longer than their counterpart is.
        return work.weights.get(id(said), 1)
    if keyword in ("pattern", "uniqueItems"):
        return 1
    if keyword == "patternProperties":
        return len(cast("dict[str, object]", said)) * _length(value)
    if keyword == "additionalProperties":
        return _length(value)
    return _length(said) if keyword in ("properties", "required", "dependentRequired") else 1


def _length(value: object) -> int:
    return 1 + len(value) if isinstance(value, (dict, list)) else 1


def _counted(keyword: str, apply: _Keyword) -> _Keyword:
    def applied(
        validator: object, said: object, value: object, schema: object
    ) -> Iterator[ValidationError]:
        work = WORK.get()
        work.spend(_price(keyword, said, value, work))
        for error in apply(validator, said, value, schema) or ():
            # Messages spell the value out.
            work.spend(len(error.message) // _CHARACTERS_PER_STEP)
            yield error

    return applied


# ---- keywords of our own ----------------------------------------------------------------


def _pattern(_: object, said: str, value: object, __: object) -> Iterator[ValidationError]:
    if isinstance(value, str):
        work = WORK.get()
        work.spend(len(value) // _CHARACTERS_PER_STEP)
        if not work.patterns[said].occurs_in(value):
            yield ValidationError("does not match")


def _pattern_properties(
    validator: _Validator, said: dict[str, JsonValue], value: object, _: object
) -> Iterator[ValidationError]:
    if not isinstance(value, dict):
        return
    for pattern, schema in said.items():
        for key, item in value.items():
            if _matches(pattern, key):
                yield from validator.descend(item, schema, path=key, schema_path=pattern)


def _additional_properties(
    validator: _Validator, said: JsonValue, value: object, schema: dict[str, JsonValue]
) -> Iterator[ValidationError]:
    """As in jsonschema, but in the order of the value: theirs is the order of a set, and differs from run to run."""
    if not isinstance(value, dict):
        return
    known = cast("dict[str, JsonValue]", schema.get("properties", {}))
    patterns = cast("dict[str, JsonValue]", schema.get("patternProperties", {}))
    for key, item in value.items():
        if key in known or any(_matches(pattern, key) for pattern in patterns):
            continue
        if said is False:
            yield ValidationError("is not allowed", path=(key,))
        else:
            yield from validator.descend(item, said, path=key)


def _matches(pattern: str, key: str) -> bool:
    work = WORK.get()
    work.spend(1 + len(key) // _CHARACTERS_PER_STEP)
    return work.patterns[pattern].occurs_in(key)


def _unique_items(
    _: object, said: JsonValue, value: object, __: object
) -> Iterator[ValidationError]:
    """In linear time; comparing each with each takes minutes for what fits into one message."""
    if said is not True or not isinstance(value, list):
        return
    work = WORK.get()
    seen: set[str] = set()
    for index, item in enumerate(value):
        text = json_text.canonical(item)
        work.spend(1 + len(text) // _CHARACTERS_PER_STEP)
        if text in seen:
            yield ValidationError("occurs twice", path=(index,))
            return
        seen.add(text)


def _multiple_of(_: Validator, said: float, value: object, __: object) -> Iterator[ValidationError]:
    """Exactly, so 0.3 is a multiple of 0.1; with doubles it is not."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        quotient = _fraction(value) / _fraction(said)
        if quotient.denominator != 1:
            yield ValidationError("is not a multiple")


def _fraction(number: float) -> Fraction:
    # By its shortest decimal. Not by how it was spelled: 1e-999999999 would take all memory.
    return Fraction(number if isinstance(number, int) else float.__repr__(number))


_OURS: Final[dict[str, _Keyword]] = {
    "additionalProperties": _additional_properties,
    "multipleOf": _multiple_of,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "uniqueItems": _unique_items,
}

KEYWORDS: Final[frozenset[str]] = frozenset(Draft202012Validator.VALIDATORS)
"""The keywords that say something about a value; all else in a schema describes."""

_THEIRS: Final = cast("Mapping[str, _Keyword]", Draft202012Validator.VALIDATORS)

CountingValidator: Final = cast(
    "type[Validator]",
    extend(  # type: ignore[no-untyped-call]  # the stubs give it no types
        Draft202012Validator,
        {
            keyword: _counted(keyword, _OURS.get(keyword, apply))
            for keyword, apply in _THEIRS.items()
        },
    ),
)
