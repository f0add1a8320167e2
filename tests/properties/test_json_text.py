"""For all JSON: what is read is written back, and no text at all crashes the reader."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepgraph_server.core import json_text
from stepgraph_server.core.json_text import JsonTextError, canonical, dump, parse

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=5) | st.dictionaries(TEXTS, below, max_size=5),
    max_leaves=30,
)
NUMBERS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?", fullmatch=True
)
# Near misses: pieces of JSON put together at random.
FRAGMENTS = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"',
    '"a"',
    "1",
    "-0",
    "0.10",
    "1e400",
    "NaN",
    "Infinity",
    "null",
    "tru",
    "\\",
    "\\ud800",
    '"\\ud83d\\ude00"',
    '"\\udc00"',
    "é",
    "01",
    "-",
    '{"a":1',
    '"a":2}',
]
PIECES = st.lists(st.sampled_from([*FRAGMENTS, " ", "\n", "\ud800"]), max_size=25).map("".join)


@given(VALUES)
def test_values_round_trip(value: object) -> None:
    text = dump(value)
    assert parse(text) == value
    assert dump(parse(text)) == text


@given(VALUES)
def test_the_text_is_what_the_standard_library_reads(value: object) -> None:
    assert json.loads(dump(value)) == value


@given(NUMBERS)
def test_numbers_keep_their_spelling(text: str) -> None:
    assert dump(parse(text)) == text
    assert dump(parse(f'{{"a":[{text}]}}')) == f'{{"a":[{text}]}}'


@given(NUMBERS)
def test_the_canonical_text_of_a_number_is_a_fixed_point_of_equal_value(text: str) -> None:
    form = canonical(parse(text))
    assert canonical(parse(form)) == form
    assert float(form) == float(text)


@given(VALUES, VALUES)
def test_canonical_texts_are_equal_for_equal_values_only(left: object, right: object) -> None:
    # Python takes True for 1, and 0.1 + 0.2 for what it is; JSON text with kinds spelled out does not.
    if canonical(left) == canonical(right):
        assert left == right


@given(PIECES | st.text(max_size=40))
def test_the_fast_path_agrees_with_the_careful_reader(text: str) -> None:
    try:
        careful: object = json_text._Reader(text, json_text.DEFAULT_LIMITS).read()
        expected = ("value", dump(careful))
    except JsonTextError as error:
        expected = ("error", str(error))
    try:
        found = ("value", dump(parse(text)))
    except JsonTextError as error:
        found = ("error", str(error))
    assert found == expected


@given(st.integers(0, 3_000), st.sampled_from(["[", '{"a":', '[{"a":']), st.booleans())
def test_no_depth_crashes(depth: int, opening: str, closed: bool) -> None:
    closing = {"[": "]", '{"a":': "}", '[{"a":': "}]"}[opening]
    text = opening * depth + "1" + (closing * depth if closed else "")
    levels = depth * (2 if opening == '[{"a":' else 1)
    if (closed or not depth) and levels <= json_text.MAX_DEPTH:
        parse(text)
        return
    with pytest.raises(JsonTextError) as caught:
        parse(text)
    assert len(str(caught.value)) < 1_000
