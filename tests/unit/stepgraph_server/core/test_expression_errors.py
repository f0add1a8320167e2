"""Texts of the library become errors in our words, also those that nobody has seen yet."""

from __future__ import annotations

import pytest

from stepgraph_server.core.expression_errors import (
    FUNCTIONS,
    ExpressionCode,
    ExpressionError,
    closest,
    kind_of,
    of_compiling,
    of_evaluating,
)
from stepgraph_server.core.expressions import Expression


def test_an_error_says_everything_once() -> None:
    error = ExpressionError(
        code=ExpressionCode.TYPE,
        message="it is odd",
        expression="a + b",
        position=2,
        hint="even it out",
        name="b",
        known=["y", "x"],
    )
    assert str(error) == "TYPE: it is odd; there is x, y (even it out), in `a + b` at character 2"
    assert (error.known, error.known_count) == (("x", "y"), 2)


def test_long_expressions_are_shortened() -> None:
    error = ExpressionError(code=ExpressionCode.COST, message="x", expression="y" * 4_000)
    assert len(error.expression) == 201


@pytest.mark.parametrize(
    ("text", "code", "position"),
    [
        ("something new", "SYNTAX", None),
        ("ERROR: <input>:-1:-1: odd", "SYNTAX", None),
        ("ERROR: <input>:9:9: odd", "SYNTAX", 5),
        ("ERROR: <input>:2:1: odd", "SYNTAX", 4),
        ("ERROR: <input>:-1:-1: undeclared reference to 'foo'", "UNKNOWN_NAME", None),
        ("CANCELLED: Expression recursion limit exceeded. limit: 32", "TOO_LARGE", None),
    ],
)
def test_any_text_of_the_compiler_is_an_error(text: str, code: str, position: int | None) -> None:
    error = of_compiling("abc\nd", text)
    assert (error.code, error.position) == (code, position)


NAMES = Expression.compile("vars.a.b == vars.c.d").names


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("UNKNOWN: something new", "TYPE", "something new"),
        ("no colon", "TYPE", "no colon"),
        ("INTERNAL: Iteration budget exceeded", "COST", "10,000 iterations"),
        ('NOT_FOUND: Key not found in map : "d"', "UNKNOWN_NAME", "vars.c has no d"),
        ('NOT_FOUND: Key not found in map : "z"', "UNKNOWN_NAME", "no key z"),
        ("INVALID_ARGUMENT: Applying SELECT to non-message type", "TYPE", "vars.a is a number"),
        ("OUT_OF_RANGE: odd", "OVERFLOW", "odd"),
        ("UNKNOWN: No matching overloads found : _<_(bool, int64)", "TYPE", "< can't take bool"),
        ("UNKNOWN: No matching overloads found : !_(int64)", "TYPE", "true or false"),
        ("UNKNOWN: No matching overloads found : -_(string)", "TYPE", "- can't take string"),
        ("UNKNOWN: No matching overloads found : size(int64)", "TYPE", "size can't take int64"),
    ],
)
def test_any_text_of_the_evaluator_is_an_error(text: str, code: str, message: str) -> None:
    data: dict[str, object] = {"vars": {"a": 1, "c": {"x": 1}}}
    error = of_evaluating("source", text, NAMES, data)
    assert error.code == code
    assert message in error.message


def test_a_field_of_what_has_none_is_told_without_a_path_too() -> None:
    names = Expression.compile("true").names
    error = of_evaluating("source", "Applying SELECT to non-message type", names, {})
    assert error.message == "a field is read of what has none"
    lists = Expression.compile("vars.a[0].b").names
    data: dict[str, object] = {"vars": {"a": []}}
    error = of_evaluating("source", "Applying SELECT to non-message type", lists, data)
    assert error.message == "a field is read of what has none"


USES = (
    "{}(dyn(1))",
    "timestamp(0).{}()",
    "duration('1s').{}()",
    "'a'.{}('a')",
    "[1].{}(x, true)",
    "{}(vars.x)",
)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_that_is_listed_exists(name: str) -> None:
    def compiles(source: str) -> bool:
        try:
            Expression.compile(source)
        except ExpressionError:
            return False
        return True

    assert any(compiles(use.format(name)) for use in USES)


def test_the_closest_name_is_suggested() -> None:
    assert closest("aproval", ["approval", "other"]) == "did you mean approval?"
    assert closest("zzz", ["approval"]) == ""


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "null"),
        (True, "a truth value"),
        (1.5, "a number"),
        ("x", "a text"),
        ([], "a list"),
        ({}, "an object"),
        (b"", "bytes"),
        (object(), "a time, a duration or a type"),
    ],
)
def test_kinds_are_named(value: object, kind: str) -> None:
    assert kind_of(value) == kind
