"""JSON Schema (2020-12): whether a value satisfies one, and what is wrong if not.

Rules: schemas and values come from strangers. Nothing is ever fetched: a reference points into the schema it stands in.
Every check has a bounded amount of work, counted in keywords and not in time, so that the same check gives the same
answer everywhere. `format` only describes. The shortcut may say "right" and nothing else; whatever it can't say is
checked by `jsonschema`, which decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from referencing import Registry

from stepgraph_server.core import json_text
from stepgraph_server.core.schema_keywords import WORK, CountingValidator, Work, WorkLimitError
from stepgraph_server.core.schema_shape import (
    MAX_SCHEMA_BYTES,
    SchemaError,
    SchemaShape,
    cut,
    path_text,
    read_schema,
)
from stepgraph_server.core.schema_shortcut import shortcut
from stepgraph_server.core.text_cache import TextCache

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from referencing.jsonschema import SchemaRegistry

    from stepgraph_server.core.json_text import JsonValue

_MAX_CACHED_CHARACTERS: Final = 8 * 1024 * 1024
# With what jsonschema brings along and without a way to fetch anything else.
_NOTHING_ELSE: Final[SchemaRegistry] = Registry()


class CompiledSchema:
    """A schema that values can be checked against."""

    __slots__ = ("_accepts", "_shape", "_validator")

    def __init__(self, shape: SchemaShape) -> None:
        self._shape = shape
        self._accepts = shortcut(shape)
        self._validator = CountingValidator(shape.root, registry=_NOTHING_ELSE)

    @property
    def root(self) -> dict[str, JsonValue]:
        """The schema. It must not be changed."""
        return self._shape.root

    def problem(self, value: JsonValue) -> str | None:
        """Return the first thing that is wrong with a value, with its path; None if nothing is."""
        if self._accepts is not None and self._accepts(value):
            return None
        return self.careful_problem(value)

    def careful_problem(self, value: JsonValue) -> str | None:
        """Do as `problem` does, without the shortcut."""
        token = WORK.set(Work(patterns=self._shape.patterns, weights=self._shape.weights))
        try:
            error = next(iter(self._validator.iter_errors(value)), None)
        except (WorkLimitError, RecursionError):
            # Not taken: what can't be checked must not pass for checked.
            return "$: checking it against this schema takes too much work"
        finally:
            WORK.reset(token)
        return None if error is None else _describe(error)


# Patterns and parsed schemas take some times the size of the text.
_compiled: Final[TextCache[CompiledSchema]] = TextCache(_MAX_CACHED_CHARACTERS)


def compile_schema(text: str) -> CompiledSchema:
    """Compile a schema, or find it among those that were compiled lately.

    Raises:
        SchemaError: It is not JSON, not a schema, too large, or uses what is left out.
    """
    compiled = _compiled.get(text)
    if compiled is None:
        compiled = CompiledSchema(read_schema(text))
        _compiled.put(text, compiled)
    return compiled


def check(schema_text: str, value: JsonValue) -> str | None:
    """Return the first thing that is wrong with a value, with its path; None if nothing is.

    Raises:
        SchemaError: As for `compile_schema`.
    """
    return compile_schema(schema_text).problem(value)


def _describe(error: ValidationError) -> str:
    # What jsonschema gives has no types of ours: `instance` is a part of the value, `validator_value` one of the schema.
    return f"{path_text(list(error.absolute_path))}: {_expectation(error)}"


def _expectation(error: ValidationError) -> str:
    said = cast("JsonValue", error.validator_value)
    value = cast("JsonValue", error.instance)
    match error.validator:
        case "type":
            names = said if isinstance(said, list) else [said]
            return f"expected {' or '.join(map(str, names))}, got {_kind(value)}"
        case "required":
            assert isinstance(said, list)
            assert isinstance(value, dict)
            return f"{', '.join(_shown(name) for name in said if name not in value)} missing"
        case "enum":
            return f"expected one of {_shown(said)}, got {_shown(value)}"
        case "const":
            return f"expected {_shown(said)}, got {_shown(value)}"
        case "additionalProperties":
            return "nothing may stand here"
        case None:  # the schema `false`; jsonschema leaves out where in the value that is
            return f"nothing is allowed where {_shown(value)} stands"
        case "uniqueItems":
            return "the same item stands in the list before"
        case "anyOf" | "oneOf":
            return f"expected a match of {_alternatives(error)}"
        case word:
            return f"expected {word} {_shown(said)}, got {_shown(value)}"


def _alternatives(error: ValidationError) -> str:
    word = "one" if error.validator == "anyOf" else "exactly one"
    text = f"{word} of {len(cast('list[JsonValue]', error.validator_value))} alternatives"
    if not error.context:
        return text
    # The alternative that went furthest is most likely the one that was meant.
    nearest = max(error.context, key=lambda each: len(each.absolute_path))
    return cut(f"{text}; of the nearest, {_describe(nearest)}")


def _kind(value: JsonValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int() | float():
            return f"the number {_shown(value)}"
        case list():
            return "an array"
        case _:
            return "an object"


def _shown(value: JsonValue) -> str:
    try:
        return cut(json_text.dump(value))
    except json_text.JsonTextError:
        return "something that has no JSON text"


__all__ = ["MAX_SCHEMA_BYTES", "CompiledSchema", "SchemaError", "check", "compile_schema"]
