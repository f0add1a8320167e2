"""JSON text comes back with the same digits, and what readers could take differently is refused."""

from __future__ import annotations

import copy
import pickle

import pytest

from stepgraph_server.core.json_text import (
    MAX_DEPTH,
    MAX_NUMBER_CHARACTERS,
    JsonFloat,
    JsonLimits,
    JsonTextError,
    canonical,
    dump,
    is_deeper_than,
    parse,
)

KEPT = [
    "9007199254740993",
    "-9223372036854775808",
    "1",
    "1.0",
    "0.10",
    "0.1",
    "1e308",
    "1E+5",
    "-0",
    "-0.0",
    "1e-400",
    "9" * MAX_NUMBER_CHARACTERS,
    "null",
    "true",
    "false",
    '""',
    "[]",
    "{}",
    '{"n":1,"big":9007199254740993,"f":1.0,"d":0.1,"x":1e308,"z":[-0,0]}',
    '"é😀\\n\\""',
]


@pytest.mark.parametrize("text", KEPT, ids=lambda text: text[:30])
def test_what_is_read_is_written_back(text: str) -> None:
    assert dump(parse(text)) == text


def test_text_is_written_compactly_and_outside_ascii_as_it_is() -> None:
    assert dump(parse(' { "ä" : [ 1 , "\\u00e9" ] } ')) == '{"ä":[1,"é"]}'


def test_a_pair_of_surrogate_escapes_is_one_character() -> None:
    # Surrogates send a text to the careful reader, so this reads all of JSON with it.
    text = '{"a":[[],{},1,-0,2.50,true,null,"x"],"b":{"c":{"d":"\\ud83d\\ude00"}}} '
    assert dump(parse(text)) == '{"a":[[],{},1,-0,2.50,true,null,"x"],"b":{"c":{"d":"😀"}}}'


REFUSED = [
    ("NaN", "NaN is not JSON", "$", 1, 1),
    ("[1, -Infinity]", "-Infinity is not JSON", "$[1]", 1, 5),
    ("1e400", "out of range", "$", 1, 1),
    ('{"a":-1e999}', "out of range", "$.a", 1, 6),
    ('"\\ud800"', "surrogate", "$", 1, 1),
    ('["\\udc00x"]', "surrogate", "$[0]", 1, 2),
    ('"\ud800"', "surrogate", "$", 1, 1),
    ('{"\\ud800":1}', "surrogate", "$", 1, 2),
    ('{"a":1,\n "a":2}', "occurs twice", "$.a", 2, 2),
    ('{"b":{"c d":[{"a":1,"a":1}]}}', "occurs twice", '$.b["c d"][0].a', 1, 21),
    ("9" * (MAX_NUMBER_CHARACTERS + 1), "more than 4300", "$", 1, 1),
    ("0." + "1" * MAX_NUMBER_CHARACTERS, "more than 4300", "$", 1, 1),
    ("[1,]", "does not start a value", "$[1]", 1, 4),
    ("[1 2]", "is missing", "$[1]", 1, 4),
    ('{"a" 1}', "':' is missing", "$.a", 1, 6),
    ("{a:1}", "a key in quotes", "$", 1, 2),
    ('{"a":1,}', "a key in quotes", "$", 1, 8),
    ('{"a":1', "is missing", "$.a", 1, 7),
    ("[", "a value is missing", "$[0]", 1, 2),
    ("", "a value is missing", "$", 1, 1),
    ("  \n ", "a value is missing", "$", 2, 2),
    ("01", "something follows", "$", 1, 2),
    ("1.", "something follows", "$", 1, 2),
    ("[] x", "something follows", "$", 1, 4),
    ("nul", "nul is not JSON", "$", 1, 1),
    ("+1", "does not start", "$", 1, 1),
    ("\ufeff1", "does not start", "$", 1, 1),
    ('"a\nb"', "string is broken", "$", 1, 3),
    ('"a', "string is broken", "$", 1, 1),
    ('"\\x"', "string is broken", "$", 1, 2),
]


@pytest.mark.parametrize(
    ("text", "message", "path", "line", "column"), REFUSED, ids=range(len(REFUSED))
)
def test_a_refusal_says_what_and_where(
    text: str, message: str, path: str, line: int, column: int
) -> None:
    with pytest.raises(JsonTextError) as caught:
        parse(text)
    assert message in caught.value.message
    assert (caught.value.path, caught.value.line, caught.value.column) == (path, line, column)
    assert len(str(caught.value)) < 1_000
    str(caught.value).encode()


@pytest.mark.parametrize("wrap", [("[", "]"), ('{"a":', "}")])
def test_depth_is_bounded_exactly(wrap: tuple[str, str]) -> None:
    def nested(depth: int) -> str:
        return wrap[0] * (depth - 1) + "[]" + wrap[1] * (depth - 1)

    assert dump(parse(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    with pytest.raises(JsonTextError, match="deeper than 64"):
        parse(nested(MAX_DEPTH + 1))
    with pytest.raises(JsonTextError, match="deeper than 3"):
        parse(nested(4), JsonLimits(max_depth=3))


@pytest.mark.parametrize(
    "text", ["[" * 10_000, "[" * 10_000 + "]" * 10_000, '{"a":' * 10_000], ids=range(3)
)
def test_no_depth_overflows_the_stack(text: str) -> None:
    with pytest.raises(JsonTextError, match="deeper than 64"):
        parse(text)


def test_many_containers_side_by_side_are_not_deep() -> None:
    text = "[" + ",".join(['{"a":["]["]}'] * 100) + "]"
    assert dump(parse(text)) == text


def test_brackets_in_strings_hide_no_depth() -> None:
    text = '["]",' * 70 + "1" + ',"["]' * 70
    with pytest.raises(JsonTextError, match="deeper than 64"):
        parse(text)


def test_size_is_counted_in_bytes() -> None:
    assert parse('"é"', JsonLimits(max_bytes=4)) == "é"
    with pytest.raises(JsonTextError, match="4 bytes, of at most 3"):
        parse('"é"', JsonLimits(max_bytes=3))
    with pytest.raises(JsonTextError, match="5 bytes, of at most 4"):
        parse("[1,2]", JsonLimits(max_bytes=4))


def test_a_deep_path_is_shortened() -> None:
    with pytest.raises(JsonTextError) as caught:
        parse('{"a":' * 30 + "x")
    assert caught.value.path == "$" + ".a" * 8 + "…" + ".a" * 8


def test_a_long_key_is_shortened() -> None:
    with pytest.raises(JsonTextError) as caught:
        parse('{"' + "k" * 10_000 + '":x}')
    assert len(caught.value.path) < 60


def test_a_number_keeps_its_spelling_through_copies() -> None:
    number = parse("0.10")
    assert isinstance(number, JsonFloat)
    assert number == 0.1
    assert repr(copy.deepcopy(number)) == repr(pickle.loads(pickle.dumps(number))) == "0.10"
    assert type(number + 1) is float


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "nan has no JSON text"),
        ([float("inf")], "inf has no JSON text"),
        ({1: 2}, "a key of an object is not text"),
        ("\ud800", "surrogate"),
        ({"\ud800": 1}, "surrogate"),
        ({"a": b"x"}, "a bytes has no JSON text"),
        ((1, 2), "a tuple has no JSON text"),
        ([10**5_000], "more than 4300"),
    ],
    ids=range(8),
)
def test_what_json_does_not_have_is_not_written(value: object, message: str) -> None:
    for write in (dump, canonical):
        with pytest.raises(JsonTextError, match=message):
            write(value)


@pytest.mark.parametrize("container", ["list", "dict"])
def test_what_could_not_be_read_is_not_written(container: str) -> None:
    value: object = 1
    for _ in range(MAX_DEPTH + 1):
        value = [value] if container == "list" else {"a": value}
    assert is_deeper_than(value, MAX_DEPTH)
    assert not is_deeper_than(value, MAX_DEPTH + 1)
    for write in (dump, canonical):
        with pytest.raises(JsonTextError, match="deeper than 64"):
            write(value)


EQUAL = [
    ("3", "3.0", "3"),
    ("30e-1", "3", "3"),
    ("-0", "0.0", "0"),
    ("0.1", "0.10", "0.1"),
    ("1e2", "100", "100"),
    ("1e308", "1" + "0" * 308, "1" + "0" * 308),
    ("-1.50", "-15e-1", "-1.5"),
    ("1e-7", "0.0000001", "1e-7"),
    ("0.05", "5e-2", "0.05"),
    ("-12.5e-3", "-0.0125", "-0.0125"),
    ("1e-400", "10e-401", "1e-400"),
    ("9007199254740993.0", "9007199254740993", "9007199254740993"),
    ('{"b":1,"a":2.0}', '{"a":2,"b":1.0}', '{"a":2,"b":1}'),
    ("[true,null]", " [ true , null ] ", "[true,null]"),
    ('["é"]', '["\\u00e9"]', '["é"]'),
]


@pytest.mark.parametrize(("left", "right", "form"), EQUAL)
def test_equal_values_have_one_canonical_text(left: str, right: str, form: str) -> None:
    assert canonical(parse(left)) == canonical(parse(right)) == form


def test_computed_floats_have_the_canonical_text_of_their_spelling() -> None:
    assert canonical(0.5) == canonical(parse("0.50"))
    assert canonical(1e22) == "1" + "0" * 22


@pytest.mark.parametrize(
    ("left", "right"),
    [("9007199254740993", "9007199254740992.0"), ("1", "true"), ("1", '"1"'), ("[]", "{}")],
)
def test_different_values_have_different_canonical_texts(left: str, right: str) -> None:
    assert canonical(parse(left)) != canonical(parse(right))
