"""Reducers, over any writes."""

from __future__ import annotations

import json
from functools import reduce as fold

from hypothesis import given
from hypothesis import strategies as st

from stepgraph.v1 import graph_pb2, value_pb2
from stepgraph_server.core import json_text
from stepgraph_server.core.reducers import reduce

APPEND = graph_pb2.REDUCER_APPEND
SUM = graph_pb2.REDUCER_SUM
MIN = graph_pb2.REDUCER_MIN
MAX = graph_pb2.REDUCER_MAX
MERGE = graph_pb2.REDUCER_MERGE

INTEGERS = st.integers(min_value=-(10**60), max_value=10**60)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.one_of(st.none(), st.booleans(), INTEGERS, FLOATS, st.text(max_size=5))
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def spelled(tree: object) -> st.SearchStrategy[value_pb2.Value]:
    """Return values that say the same in different spellings."""
    return st.sampled_from([None, 1]).map(
        lambda indent: value_pb2.Value(json=json.dumps(tree, indent=indent))
    )


VALUES = TREES.flatmap(spelled)
LISTS = st.lists(TREES, max_size=4).flatmap(spelled)
OBJECTS = st.dictionaries(st.text(max_size=2), TREES, max_size=4).flatmap(spelled)
WHOLE = INTEGERS.flatmap(spelled)
NUMBERS = st.one_of(INTEGERS, FLOATS).flatmap(spelled)


def said(value: value_pb2.Value) -> json_text.JsonValue:
    return json_text.parse(value.json)


def same(one: value_pb2.Value, other: value_pb2.Value) -> bool:
    """Whether both say the same, numbers by their spelling: 1 is not 1.0, and true is not 1."""
    return json_text.dump(said(one)) == json_text.dump(said(other))


@given(st.one_of(st.none(), LISTS), VALUES)
def test_append_gives_what_lists_give(base: value_pb2.Value | None, write: value_pb2.Value) -> None:
    held = [] if base is None else said(base)
    added = said(write)
    assert isinstance(held, list)
    expected = held + (added if isinstance(added, list) else [added])
    result = reduce(APPEND, base, write)
    assert json_text.dump(said(result)) == json_text.dump(expected)


@given(LISTS, LISTS, LISTS)
def test_append_of_lists_is_associative(
    a: value_pb2.Value, b: value_pb2.Value, c: value_pb2.Value
) -> None:
    left = reduce(APPEND, reduce(APPEND, a, b), c)
    right = reduce(APPEND, a, reduce(APPEND, b, c))
    assert same(left, right)


@given(OBJECTS, OBJECTS, OBJECTS)
def test_merge_is_associative(a: value_pb2.Value, b: value_pb2.Value, c: value_pb2.Value) -> None:
    left = reduce(MERGE, reduce(MERGE, a, b), c)
    right = reduce(MERGE, a, reduce(MERGE, b, c))
    assert json_text.canonical(said(left)) == json_text.canonical(said(right))


@given(st.lists(WHOLE, min_size=1, max_size=6))
def test_sums_of_integers_are_exact_in_any_order(writes: list[value_pb2.Value]) -> None:
    total = fold(lambda base, write: reduce(SUM, base, write), writes, None)
    backwards = fold(lambda base, write: reduce(SUM, base, write), writes[::-1], None)
    assert total is not None
    assert backwards is not None
    numbers = [said(write) for write in writes]
    assert said(total) == said(backwards) == sum(n for n in numbers if isinstance(n, int))


@given(st.lists(NUMBERS, min_size=1, max_size=6))
def test_min_and_max_are_one_of_the_writes_as_it_was_spelled(
    writes: list[value_pb2.Value],
) -> None:
    numbers = [n for write in writes if isinstance(n := said(write), (int, float))]
    for reducer, best in ((MIN, min(numbers)), (MAX, max(numbers))):
        result = fold(lambda base, write, r=reducer: reduce(r, base, write), writes, None)
        assert result in writes
        assert result is not None
        assert said(result) == best
