from __future__ import annotations

import pytest

from stepgraph_server.core.json_text import JsonValue, parse
from stepgraph_server.core.schema_keywords import (
    MAX_STEPS,
    WORK,
    CountingValidator,
    Work,
    WorkLimitError,
)
from stepgraph_server.core.schema_shape import read_schema


def errors(schema: str, value: JsonValue, steps: int = MAX_STEPS) -> list[str]:
    """Return the paths of all errors."""
    shape = read_schema(schema)
    token = WORK.set(Work(patterns=shape.patterns, weights=shape.weights, steps_left=steps))
    try:
        found = list(CountingValidator(shape.root).iter_errors(value))
    finally:
        WORK.reset(token)
    return [error.json_path for error in found]


def test_a_pattern_is_for_texts() -> None:
    assert errors('{"pattern": "^a"}', "ab") == []
    assert errors('{"pattern": "^a"}', "b") == ["$"]
    assert errors('{"pattern": "^a"}', 3) == []


def test_properties_can_be_found_by_pattern() -> None:
    schema = '{"patternProperties": {"^n_": {"type": "number"}}}'
    assert errors(schema, {"n_a": 1, "other": "x"}) == []
    assert errors(schema, {"n_a": "x"}) == ["$.n_a"]
    assert errors(schema, []) == []


def test_additional_properties_are_those_that_nothing_names() -> None:
    schema = (
        '{"properties": {"a": {}}, "patternProperties": {"^b": {}}, "additionalProperties": %s}'
    )
    value: JsonValue = {"z": 1, "a": 1, "b1": 1, "c": 1}
    assert errors(schema % "false", value) == ["$.z", "$.c"]
    assert errors(schema % '{"type": "null"}', value) == ["$.z", "$.c"]
    assert errors(schema % "true", value) == []
    assert errors(schema % "false", 3) == []


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ([1, 2, "1"], []),
        ([1, True, 0, False], []),
        ([1, 1.0], ["$[1]"]),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], ["$[1]"]),
        ([[1], [True]], []),
        ("aa", []),
    ],
)
def test_unique_items_are_compared_by_what_they_say(value: JsonValue, found: list[str]) -> None:
    assert errors('{"uniqueItems": true}', value) == found
    assert errors('{"uniqueItems": false}', value) == []


@pytest.mark.timeout(10)
def test_many_mixed_items_are_compared_in_linear_time() -> None:
    items: list[JsonValue] = [index if index % 2 else str(index) for index in range(50_000)]
    assert errors('{"uniqueItems": true}', [*items]) == []


@pytest.mark.parametrize(
    ("divisor", "number", "is_multiple"),
    [
        ("3", "9", True),
        ("3", "10", False),
        ("0.1", "0.3", True),
        ("0.01", "19.99", True),
        ("0.1", "0.35", False),
        ("0.5", "1" + "0" * 400, True),
        ("1e-300", "1e300", True),
        ("2", "1e-99999999999", True),
        ("2", "true", True),
    ],
)
def test_multiples_are_exact(divisor: str, number: str, is_multiple: bool) -> None:
    found = errors(f'{{"multipleOf": {divisor}}}', parse(number))
    assert found == ([] if is_multiple else ["$"])


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ('{"items": {"type": "integer"}}', "[" + "1," * 60 + "1]"),
        ('{"items": {"enum": [' + "0," * 50 + "0]}}", "[1, 1]"),
        ('{"const": [' + "0," * 99 + "0]}", "[1]"),
        ('{"required": ["a"], "properties": {' + ",".join(f'"p{i}": {{}}' for i in range(60)) + "}}", "{}"),
        ('{"patternProperties": {"a": {}, "b": {}}}', "{" + ",".join(f'"p{i}": 1' for i in range(30)) + "}"),
        ('{"additionalProperties": {}}', "{" + ",".join(f'"p{i}": 1' for i in range(60)) + "}"),
        ('{"uniqueItems": true}', "[" + ",".join(map(str, range(60))) + "]"),
        ('{"pattern": "a"}', '"' + "x" * 15_000 + '"'),
        ('{"type": "null"}', '"' + "x" * 15_000 + '"'),
    ],
)  # fmt: skip
def test_everything_that_takes_long_is_counted(schema: str, value: str) -> None:
    errors(schema, parse(value))
    with pytest.raises(WorkLimitError):
        errors(schema, parse(value), steps=50)
