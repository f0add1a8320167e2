from __future__ import annotations

import json

import pytest

from stepgraph_server.core.json_text import JsonValue, parse
from stepgraph_server.core.schema_shape import read_schema
from stepgraph_server.core.schema_shortcut import Accepts, shortcut


def built(schema: str) -> Accepts:
    accepts = shortcut(read_schema(schema))
    assert accepts is not None
    return accepts


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ('{"type": "string"}', ['""'], ["1", "null"]),
        ('{"type": "integer"}', ["1", "1.0", "1e3"], ["1.5", "true", '"1"']),
        ('{"type": "number"}', ["1", "1.5", "0.10"], ["true", "null"]),
        ('{"type": "boolean"}', ["true", "false"], ["1", "0", "null"]),
        ('{"type": "null"}', ["null"], ["0", '""']),
        ('{"type": "array"}', ["[]"], ["{}"]),
        ('{"type": "object"}', ["{}"], ["[]"]),
        ('{"type": ["string", "null"]}', ['"a"', "null"], ["1"]),
        ('{"enum": ["a", "b"]}', ['"a"'], ['"c"', "1", "[]"]),
        ('{"const": "a"}', ['"a"'], ['"b"']),
        ('{"pattern": "^a"}', ['"ab"', "1"], ['"b"']),
        ('{"items": {"type": "string"}}', ["[]", '["a"]', "1"], ['["a", 1]']),
        ('{"anyOf": [{"type": "string"}, {"type": "null"}]}', ['"a"', "null"], ["1"]),
        ('{"minimum": 1, "maximum": 3}', ["1", "3.0", '"x"', "true"], ["0", "3.5"]),
        ('{"minLength": 1, "maxLength": 2}', ['"a"', "1"], ['""', '"abc"']),
        ('{"minItems": 1, "maxItems": 2}', ["[1]", "1"], ["[]", "[1, 2, 3]"]),
        ('{"format": "date", "title": "x", "default": 1, "x-mine": 1}', ['"no date"'], []),
        ('{"properties": {"a": {"type": "null"}}}', ['{"a": null, "b": 1}', "1"], ['{"a": 1}']),
        ('{"required": ["a"]}', ['{"a": 1}', "1"], ["{}"]),
        ('{"properties": {"a": {}}, "additionalProperties": false}', ['{"a": 1}'], ['{"b": 1}']),
        ('{"additionalProperties": {"type": "null"}}', ['{"a": null}'], ['{"a": 1}']),
        ("{}", ["1", "null"], []),
    ],
)
def test_what_is_common_is_covered(schema: str, right: list[str], wrong: list[str]) -> None:
    accepts = built(schema)
    assert [text for text in right if not accepts(parse(text))] == []
    assert [text for text in wrong if accepts(parse(text))] == []


@pytest.mark.parametrize(
    "schema",
    [
        '{"$ref": "#"}',
        '{"oneOf": [{}]}',
        '{"not": {}}',
        '{"enum": [1]}',
        '{"const": null}',
        '{"exclusiveMinimum": 1}',
        '{"properties": {"a": false}}',
        '{"items": true}',
        '{"patternProperties": {"a": {}}, "properties": {}}',
        '{"properties": {"a": {"uniqueItems": true}}}',
    ],
)
def test_one_keyword_that_is_not_covered_is_enough_to_give_up(schema: str) -> None:
    assert shortcut(read_schema(schema)) is None


def test_a_schema_with_very_many_tests_is_not_covered() -> None:
    alternatives = [{"type": "string"}] * 200
    assert shortcut(read_schema(json.dumps({"items": {"anyOf": alternatives}}))) is None


def test_a_member_that_is_not_named_may_be_anything() -> None:
    value: JsonValue = {"other": [1, {"deep": None}]}
    assert built('{"properties": {"a": {"type": "string"}}}')(value)
