from __future__ import annotations

import json

import pytest

from stepgraph_server.core import schemas
from stepgraph_server.core.json_text import JsonFloat, JsonValue, parse

SEARCH = json.dumps(
    {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "limit": {"type": "integer", "minimum": 1},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["query"],
        "additionalProperties": False,
    }
)


def check(schema: object, value: JsonValue) -> str | None:
    return schemas.check(json.dumps(schema), value)


def test_a_value_that_fits_has_no_problem() -> None:
    assert schemas.check(SEARCH, {"query": "x", "limit": 3, "tags": ["a"]}) is None


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({}, '$: "query" missing'),
        ({"query": 1}, "$.query: expected string, got the number 1"),
        ({"query": "x", "limit": 0}, "$.limit: expected minimum 1, got 0"),
        ({"query": "x", "limit": 1.5}, "$.limit: expected integer, got the number 1.5"),
        ({"query": "x", "limit": None}, "$.limit: expected integer, got null"),
        ({"query": "x", "limit": True}, "$.limit: expected integer, got a boolean"),
        ({"query": "x", "tags": ["a", {}]}, "$.tags[1]: expected string, got an object"),
        ({"query": "x", "tags": "a"}, "$.tags: expected array, got a string"),
        ({"query": "x", "other": 1}, "$.other: nothing may stand here"),
        ([], "$: expected object, got an array"),
    ],
)
def test_the_first_problem_is_said_with_its_place(value: JsonValue, problem: str) -> None:
    assert schemas.check(SEARCH, value) == problem


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"type": ["string", "null"]}, 1, "$: expected string or null, got the number 1"),
        ({"enum": [1, 2]}, 3, "$: expected one of [1,2], got 3"),
        ({"const": {"a": 1}}, {"a": 2}, '$: expected {"a":1}, got {"a":2}'),
        ({"pattern": "^a+$"}, "b", '$: expected pattern "^a+$", got "b"'),
        ({"uniqueItems": True}, [1, 1.0], "$[1]: the same item stands in the list before"),
        ({"properties": {"a": False}}, {"a": 1}, "$: nothing is allowed where 1 stands"),
        ({"not": {}}, 1, "$: expected not {}, got 1"),
        (
            {"anyOf": [{"type": "null"}, {"items": {"type": "null"}}]},
            [None, 1],
            (
                "$: expected a match of one of 2 alternatives; of the nearest, "
                "$[1]: expected null, got the number 1"
            ),
        ),
        ({"oneOf": [{}, {}]}, 1, "$: expected a match of exactly one of 2 alternatives"),
    ],
)
def test_problems_say_what_was_expected(schema: object, value: JsonValue, problem: str) -> None:
    assert check(schema, value) == problem


def test_numbers_keep_their_spelling_in_problems() -> None:
    assert check({"maximum": 0}, JsonFloat("0.10")) == "$: expected maximum 0, got 0.10"
    big = 9007199254740993
    assert check({"maximum": big - 1}, big) == f"$: expected maximum {big - 1}, got {big}"


def test_a_problem_is_never_long() -> None:
    problem = check({"enum": ["x" * 10_000]}, "y" * 10_000)
    assert problem is not None
    assert len(problem) < 500


def test_a_value_without_json_text_is_not_spelled_out() -> None:
    problem = check({"maximum": 0}, float("inf"))
    assert problem == "$: expected maximum 0, got something that has no JSON text"


def test_a_broken_schema_raises() -> None:
    with pytest.raises(schemas.SchemaError):
        schemas.check('{"type": "nonsense"}', {})


def test_a_schema_is_compiled_once() -> None:
    assert schemas.compile_schema(SEARCH) is schemas.compile_schema(SEARCH)
    assert schemas.compile_schema(SEARCH).root["type"] == "object"


def test_formats_only_describe() -> None:
    assert check({"format": "date-time"}, "yesterday") is None


def test_references_work_as_deep_as_values_may_be() -> None:
    schema = {
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
                "required": ["kids"],
            }
        },
        "$ref": "#/$defs/tree",
    }
    deep = '{"kids":[' * 31 + '{"kids":[]}' + "]}" * 31
    assert check(schema, parse(deep)) is None
    wrong = '{"kids":[' * 31 + "{}" + "]}" * 31
    problem = check(schema, parse(wrong))
    assert problem is not None
    assert problem.endswith('"kids" missing')


@pytest.mark.timeout(10)
def test_a_schema_that_fans_out_is_given_up() -> None:
    """Forty references that each stand twice: a thousand thousand million checks."""
    definitions: dict[str, object] = {
        f"d{index}": {"allOf": [{"$ref": f"#/$defs/d{index + 1}"}] * 2} for index in range(40)
    }
    definitions["d40"] = {"type": "string"}
    problem = check({"$defs": definitions, "$ref": "#/$defs/d0"}, "x")
    assert problem == "$: checking it against this schema takes too much work"


def test_a_reference_to_itself_is_given_up() -> None:
    assert check({"$ref": "#"}, 1) == "$: checking it against this schema takes too much work"


@pytest.mark.timeout(10)
def test_nothing_large_is_compared_again_and_again() -> None:
    constant = [0] * 10_000
    schema = {"allOf": [{"const": constant}] + [{"enum": [[1]]}] * 2_000}
    value: JsonValue = [*constant]
    assert check(schema, value) is not None
