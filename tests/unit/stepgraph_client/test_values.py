from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from stepgraph.v1.run_pb2 import Run
from stepgraph.v1.value_pb2 import Secret, StoredValue, Value
from stepgraph_client.values import from_value, read_as, to_value


class City(BaseModel):
    name: str
    founded: datetime | None = None


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("given", "kind", "content"),
    [
        ("3", "text", "3"),
        (9007199254740993, "json", "9007199254740993"),
        (1.0, "json", "1.0"),
        (None, "json", "null"),
        (True, "json", "true"),
        ({"ü": (1, 2)}, "json", '{"ü":[1,2]}'),
        (City(name="Oslo"), "json", '{"name":"Oslo","founded":null}'),
        ([Point(1)], "json", '[{"x":1}]'),
        ({"at": datetime(2026, 1, 31, tzinfo=UTC)}, "json", '{"at":"2026-01-31T00:00:00Z"}'),
    ],
    ids=range(9),
)
def test_text_is_text_and_the_rest_is_exact_json(given, kind, content) -> None:
    value = to_value(given)
    assert value.WhichOneof("kind") == kind
    assert getattr(value, kind) == content


def test_bytes_are_a_blob() -> None:
    assert to_value(b"\x00").blob.data == to_value(bytearray(b"\x00")).blob.data == b"\x00"


def test_values_and_references_are_taken_as_they_are() -> None:
    value = Value(json="1.000")
    assert to_value(value) is value
    stored = StoredValue(digest="sha256:0")
    assert to_value(stored).stored == stored
    assert from_value(Value(stored=stored)) == stored
    assert from_value(Value(secret=Secret(name="key"))) == Secret(name="key")


def test_an_empty_value_is_none() -> None:
    assert from_value(Value()) is None


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (float("nan"), ValueError),
        (object(), TypeError),
        ({1: object()}, TypeError),
        (Run(), TypeError),
    ],
    ids=range(4),
)
def test_what_has_no_json_is_refused(given, error) -> None:
    with pytest.raises(error):
        to_value(given)


def test_what_is_in_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="ircular"):
        to_value(loop)
    deep: object = 0
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="nested too deep"):
        to_value(deep)


def test_a_value_is_read_as_what_one_expects() -> None:
    assert read_as(to_value(City(name="Oslo")), City) == City(name="Oslo")
    assert read_as(to_value([Point(1)]), list[Point]) == [Point(1)]
    assert read_as(to_value("3"), str) == "3"
    with pytest.raises(ValidationError):
        read_as(to_value({"nam": "Oslo"}), City)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON | st.text(st.characters(exclude_categories=["Cs"])) | st.binary())
def test_what_goes_out_comes_back(value) -> None:
    assert from_value(to_value(value)) == value


@pytest.mark.parametrize("given", ["text", 3, None, StoredValue()])
def test_what_is_no_value_is_refused_with_what_was_expected(given) -> None:
    """A Python value in the place of a Value is told apart, in both readers."""
    for read in (from_value, lambda value: read_as(value, str)):
        with pytest.raises(
            TypeError, match=f"expected a stepgraph.v1.Value, found a {type(given).__name__}"
        ):
            read(given)
