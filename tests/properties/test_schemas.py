"""The shortcut of schemas against the careful check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from stepgraph_server.core import json_text
from stepgraph_server.core.schema_shape import read_schema
from stepgraph_server.core.schemas import CompiledSchema

if TYPE_CHECKING:
    from stepgraph_server.core.json_text import JsonValue

NAMES = st.sampled_from(["a", "b", "c"])
TYPES = st.sampled_from(["array", "boolean", "integer", "null", "number", "object", "string"])
SMALL = st.integers(min_value=0, max_value=3)
BOUNDS = st.sampled_from(["minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"])


def schemas_over(inner: st.SearchStrategy[JsonValue]) -> st.SearchStrategy[JsonValue]:
    keywords = {
        "properties": st.dictionaries(NAMES, inner, max_size=3),
        "required": st.lists(NAMES, max_size=2, unique=True),
        "additionalProperties": st.one_of(st.booleans(), inner),
        "items": inner,
        "anyOf": st.lists(inner, min_size=1, max_size=2),
    }
    return st.fixed_dictionaries({}, optional=keywords)


LEAVES = st.fixed_dictionaries(
    {},
    optional={
        "type": st.one_of(TYPES, st.lists(TYPES, min_size=1, max_size=2, unique=True)),
        "enum": st.lists(NAMES, min_size=1, max_size=2, unique=True),
        "const": NAMES,
        "pattern": st.sampled_from(["a", "^b$"]),
        "format": st.just("date"),
        "title": st.text(max_size=3),
    },
)
BOUNDED = st.dictionaries(BOUNDS, SMALL, max_size=2)
MIXED = st.builds(lambda one, other: {**one, **other}, LEAVES, BOUNDED)
SCHEMAS = st.recursive(MIXED, schemas_over, max_leaves=6)
NUMBERS = st.sampled_from(["0", "1", "1.0", "1.50", "3e0", "2.5", "-1", "9007199254740993"])
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NAMES, st.just(""), NUMBERS.map(json_text.parse)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)


@given(SCHEMAS, VALUES)
def test_the_shortcut_says_what_the_careful_check_says(schema: JsonValue, value: JsonValue) -> None:
    compiled = CompiledSchema(read_schema(json_text.dump(schema)))
    assert compiled.problem(value) == compiled.careful_problem(value)


@given(SCHEMAS, VALUES)
def test_what_the_shortcut_turns_down_has_a_problem(schema: JsonValue, value: JsonValue) -> None:
    """Else it would be right, but no shortcut."""
    compiled = CompiledSchema(read_schema(json_text.dump(schema)))
    accepts = compiled._accepts
    if accepts is not None and not accepts(value):
        assert compiled.careful_problem(value) is not None
