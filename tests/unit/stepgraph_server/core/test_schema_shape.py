from __future__ import annotations

import json

import pytest

from stepgraph_server.core.schema_shape import (
    MAX_PATTERNS,
    MAX_SCHEMA_BYTES,
    SchemaError,
    cut,
    path_text,
    read_schema,
)


def refused(schema: object) -> SchemaError:
    with pytest.raises(SchemaError) as caught:
        read_schema(schema if isinstance(schema, str) else json.dumps(schema))
    return caught.value


class TestReading:
    def test_patterns_are_compiled_once(self) -> None:
        shape = read_schema(
            json.dumps(
                {
                    "pattern": "a",
                    "items": {"pattern": "a"},
                    "patternProperties": {"b": {"pattern": "c"}},
                }
            )
        )
        assert set(shape.patterns) == {"a", "b", "c"}

    def test_what_comparing_may_cost_is_counted(self) -> None:
        shape = read_schema('{"properties": {"a": {"const": {"x": [1, 2]}}, "b": {"enum": [1]}}}')
        assert sorted(shape.weights.values()) == [2, 4]

    def test_the_dialect_and_the_name_at_the_root_are_ignored(self) -> None:
        text = '{"$schema": "http://json-schema.org/draft-07/schema#", "$id": "x", "type": "null"}'
        assert read_schema(text).root == {"type": "null"}

    def test_properties_may_have_the_names_of_keywords(self) -> None:
        read_schema('{"properties": {"$id": {}, "$schema": {}, "pattern": {}, "$ref": {}}}')

    def test_data_is_no_schema_whatever_it_looks_like(self) -> None:
        read_schema(
            '{"default": {"pattern": "("}, "const": {"$ref": "http://x"}, "enum": [{"$id": "x"}]}'
        )


class TestReferences:
    @pytest.mark.parametrize(
        "reference",
        [
            "#",
            "#/$defs/item",
            "#/definitions/old",
            "#/allOf/0",
            "#/$defs/a~1b",
            "#/$defs/a%20b",
            "#/$defs/all",
        ],
    )
    def test_they_may_point_to_schemas_of_the_same_text(self, reference: str) -> None:
        schema = {
            "$defs": {"item": {}, "a/b": {}, "a b": {}, "all": True},
            "definitions": {"old": {}},
            "allOf": [{}],
            "properties": {"x": {"$ref": reference}},
        }
        read_schema(json.dumps(schema))

    @pytest.mark.parametrize(
        ("reference", "complaint"),
        [
            ("http://localhost/schema", "must point into this schema"),
            ("https://json-schema.org/draft/2020-12/schema", "must point into this schema"),
            ("other.json#/a", "must point into this schema"),
            ("#anchor", "must point into this schema"),
            ("#/$defs/none", "points to nothing"),
            ("#/allOf/7", "points to nothing"),
            ("#/enum/0", "is not a schema"),
        ],
    )
    def test_they_may_not_point_elsewhere(self, reference: str, complaint: str) -> None:
        error = refused({"allOf": [{}], "enum": [{}], "items": {"$ref": reference}})
        assert complaint in error.message
        assert error.path == "$.items"


class TestRefusals:
    @pytest.mark.parametrize(
        ("schema", "path", "complaint"),
        [
            ("{", "$", "not JSON"),
            ('{"a": NaN}', "$.a", "not JSON"),
            ("[]", "$", "not a JSON object"),
            ("true", "$", "not a JSON object"),
            ({"type": "strin"}, "$.type", "strin"),
            ({"properties": {"a b": {"minimum": "1"}}}, '$.properties["a b"].minimum', "number"),
            ({"items": {"$dynamicRef": "#x"}}, "$.items", "$dynamicRef"),
            ({"not": {"$id": "x"}}, "$.not", "root only"),
            ({"anyOf": [{}, {"$schema": "http://x"}]}, "$.anyOf[1]", "root only"),
            ({"properties": {"a": {"pattern": "(?=x)"}}}, "$.properties.a", "look-around"),
            ({"patternProperties": {"(": {}}}, "$", "unclosed"),
            (
                {"unevaluatedProperties": False, "allOf": [{"patternProperties": {"a": {}}}]},
                "$",
                "can't stand in one schema",
            ),
        ],
    )
    def test_what_is_wrong_is_said_with_its_place(
        self, schema: object, path: str, complaint: str
    ) -> None:
        error = refused(schema)
        assert error.path == path
        assert complaint in error.message
        assert str(error) == f"{error.message} at {path}"

    def test_a_schema_may_not_be_too_large(self) -> None:
        assert "bytes" in refused({"description": "x" * MAX_SCHEMA_BYTES}).message

    def test_a_schema_may_not_have_too_many_patterns(self) -> None:
        properties = {f"p{index}": {"pattern": f"p{index}"} for index in range(MAX_PATTERNS + 1)}
        assert "patterns" in refused({"properties": properties}).message

    def test_a_schema_that_is_too_deep_for_its_check_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def too_deep(*_: object, **__: object) -> None:
            raise RecursionError

        monkeypatch.setattr(
            "stepgraph_server.core.schema_shape.Draft202012Validator.check_schema", too_deep
        )
        assert "too deep" in refused({}).message


def test_a_path_is_written_for_people() -> None:
    assert path_text(["items", 3, "name", "a b", "\n"]) == '$.items[3].name["a b"]["\\n"]'


def test_long_texts_are_cut() -> None:
    assert cut("x" * 200) == "x" * 200
    assert cut("x" * 201) == "x" * 199 + "…"
    assert len(path_text(["x" * 300])) == 200
