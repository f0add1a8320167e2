"""A fast check for the schemas that tools usually have.

Rules: what is built here only ever says "right". It covers what is common, and gives up on the whole schema at the first
keyword that it does not cover, so it never has to know what it left out. There are no references in what it covers, so
its work is bounded by the sizes of schema and value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from stepgraph_server.core.schema_keywords import KEYWORDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepgraph_server.core.json_text import JsonValue
    from stepgraph_server.core.schema_patterns import Pattern
    from stepgraph_server.core.schema_shape import SchemaShape

Accepts: TypeAlias = Callable[["JsonValue"], bool]

# Each may be tried on each item of a list; this many on the largest list that a message holds take a good second.
_MAX_TESTS: Final = 256


class _NotCoveredError(Exception):
    pass


def shortcut(shape: SchemaShape) -> Accepts | None:
    """Return a function that is true only for values that satisfy the schema; None if the schema is not covered."""
    try:
        return _Builder(shape.patterns).build(shape.root)
    except _NotCoveredError:
        return None


class _Builder:
    def __init__(self, patterns: Mapping[str, Pattern]) -> None:
        self._patterns = patterns
        self._tests_left = _MAX_TESTS

    def build(self, schema: JsonValue) -> Accepts:
        self._tests_left -= 1
        if not isinstance(schema, dict) or self._tests_left < 0:
            raise _NotCoveredError
        words = KEYWORDS.intersection(schema)
        tests = [
            self._test(word, schema) for word in schema if word in words and word not in _OF_OBJECTS
        ]
        if not _OF_OBJECTS.isdisjoint(words):
            tests.append(self._object(schema))
        if len(tests) == 1:
            return tests[0]
        return lambda value: _all(tests, value)

    def _test(self, word: str, schema: dict[str, JsonValue]) -> Accepts:
        self._tests_left -= 1
        said = schema[word]
        match word:
            case "type":
                return _of_type(said)
            case "enum" | "const":
                return _one_of(said if word == "enum" else [said])
            case "pattern":
                pattern = self._patterns[str(said)]
                return lambda value: type(value) is not str or pattern.occurs_in(value)
            case "items":
                test = self.build(said)
                return lambda value: type(value) is not list or all(map(test, value))
            case "anyOf":
                return self._any_of(said)
            case "format":
                return _anything
            case _:
                return _bound(word, said)

    def _any_of(self, said: JsonValue) -> Accepts:
        assert isinstance(said, list)
        tests = [self.build(item) for item in said]
        return lambda value: _any(tests, value)

    def _object(self, schema: dict[str, JsonValue]) -> Accepts:
        """Test `properties`, `required` and `additionalProperties` in one pass over the members."""
        properties = schema.get("properties", {})
        assert isinstance(properties, dict)
        tests = {name: self.build(inner) for name, inner in properties.items()}
        required = schema.get("required", [])
        assert isinstance(required, list)
        extra = schema.get("additionalProperties", True)
        # None refuses; so does no test for a name that `properties` has, since each of those has one.
        others = None if extra is False else _anything if extra is True else self.build(extra)

        def accepts(value: JsonValue) -> bool:
            if type(value) is not dict:
                return True
            for name in required:
                if name not in value:
                    return False
            for name, item in value.items():
                test = tests.get(name, others)
                if test is None or not test(item):
                    return False
            return True

        return accepts


_OF_OBJECTS: Final = frozenset({"properties", "required", "additionalProperties"})


def _anything(_: JsonValue) -> bool:
    return True


def _all(tests: list[Accepts], value: JsonValue) -> bool:
    for test in tests:  # noqa: SIM110  # a generator costs more than most of these tests
        if not test(value):
            return False
    return True


def _any(tests: list[Accepts], value: JsonValue) -> bool:
    for test in tests:  # noqa: SIM110  # as above
        if test(value):
            return True
    return False


def _is_integer(value: JsonValue) -> bool:
    return type(value) is int or (isinstance(value, float) and value.is_integer())


def _is_number(value: JsonValue) -> bool:
    return type(value) is int or isinstance(value, float)


_TYPES: Final[Mapping[str, Accepts]] = {
    "array": lambda value: type(value) is list,
    "boolean": lambda value: value is True or value is False,
    "integer": _is_integer,
    "null": lambda value: value is None,
    "number": _is_number,
    "object": lambda value: type(value) is dict,
    "string": lambda value: type(value) is str,
}


def _of_type(said: JsonValue) -> Accepts:
    if isinstance(said, str):
        return _TYPES[said]
    assert isinstance(said, list)
    tests = [_TYPES[str(name)] for name in said]
    return lambda value: _any(tests, value)


def _one_of(said: JsonValue) -> Accepts:
    # Only texts: equality of numbers and of what contains them has rules of its own.
    assert isinstance(said, list)
    texts = frozenset(item for item in said if isinstance(item, str))
    if len(texts) != len(said):
        raise _NotCoveredError
    return lambda value: type(value) is str and value in texts


def _bound(word: str, said: JsonValue) -> Accepts:
    if not isinstance(said, (int, float)):
        raise _NotCoveredError
    limit = said
    match word:
        case "minimum":
            return lambda value: (
                not isinstance(value, (int, float)) or type(value) is bool or value >= limit
            )
        case "maximum":
            return lambda value: (
                not isinstance(value, (int, float)) or type(value) is bool or value <= limit
            )
        case "minLength":
            return lambda value: type(value) is not str or len(value) >= limit
        case "maxLength":
            return lambda value: type(value) is not str or len(value) <= limit
        case "minItems":
            return lambda value: type(value) is not list or len(value) >= limit
        case "maxItems":
            return lambda value: type(value) is not list or len(value) <= limit
        case _:
            raise _NotCoveredError
