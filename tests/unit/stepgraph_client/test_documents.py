from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepgraph_client import documents
from stepgraph_client.documents import (
    DocumentError,
    Entries,
    Items,
    Kind,
    Mark,
    Scalar,
    read_document,
)


def yaml(text: str):
    return read_document(text, is_json=False)


def js(text: str):
    return read_document(text, is_json=True)


def bare(part):
    """A tree without places, as Python values with their kinds."""
    match part:
        case Scalar():
            return (part.kind.name, part.text)
        case Items():
            return [bare(each) for each in part.items]
        case Entries():
            return {key.text: bare(value) for key, value in part.entries}


@pytest.mark.parametrize("read", [yaml, js])
def test_both_languages_give_the_same_tree(read) -> None:
    tree = read('{"a": [1, -2.5, true, null, "x\\u00e9\\ud83d\\ude00"],\n "b": {}}')
    assert bare(tree) == {
        "a": [
            ("INTEGER", "1"),
            ("NUMBER", "-2.5"),
            ("BOOLEAN", "true"),
            ("NULL", "null"),
            ("TEXT", "xé😀"),
        ],
        "b": {},
    }


@pytest.mark.parametrize("read", [yaml, js])
def test_every_part_knows_its_place(read) -> None:
    tree = read('{"a": 1,\n  "b": [2]}')
    (_, first), (key, second) = tree.entries
    assert tree.mark == Mark(line=1, column=1)
    assert first.mark == Mark(line=1, column=7)
    assert key.mark == Mark(line=2, column=3)
    assert second.items[0].mark == Mark(line=2, column=9)


def test_words_that_yaml_once_took_for_booleans_are_text() -> None:
    assert bare(yaml("[on, no, yes, 2026-01-31, '3', <<, =]")) == [
        ("TEXT", word) for word in ("on", "no", "yes", "2026-01-31", "3", "<<", "=")
    ]


def test_equal_keys_are_left_for_the_reader_to_refuse() -> None:
    assert len(yaml("a: 1\na: 2\n").entries) == 2
    assert len(js('{"a": 1, "a": 2}').entries) == 2


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", (1, 1), "the file is empty"),
        ("a: [1\nb: 2", (2, 2), "expected ',' or ']'"),
        ("a: b: c", (1, 5), "mapping values are not allowed"),
        ("\ta: 1", (1, 1), "a tab can't indent YAML"),
        ("a: *nope", (1, 4), "undefined alias"),
        ("a: 1\n---\nb: 2", (2, 1), "but found another document"),
        ("a: !!python/object:os.system {}", (1, 4), "tags such as"),
        ("a: !mine 3", (1, 4), "tags such as"),
        ("? [a]\n: 1", (1, 3), "a key must be a name"),
        ("a: \x01", (1, 1), "special characters are not allowed"),
    ],
)
def test_what_is_not_plain_yaml_is_refused_with_its_place(text, place, message) -> None:
    with pytest.raises(DocumentError, match=message) as caught:
        yaml(text)
    assert (caught.value.mark.line, caught.value.mark.column) == place


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", (1, 1), "expected a value.* before the end of the file"),
        ('{"a": 1', (1, 8), "expected ',' or '}' before the end"),
        ('{"a" 1}', (1, 6), "expected ':'"),
        ("{a: 1}", (1, 2), "expected a key in double quotes"),
        ('{"a": 1,}', (1, 9), "expected a key in double quotes"),
        ("[1 2]", (1, 4), "expected ',' or '\\]'"),
        ("[1,\n 'x']", (2, 2), "expected a value"),
        ("1 2", (1, 3), "expected the end of the file"),
        ("[01]", (1, 3), "expected ','"),
        ("NaN", (1, 1), "expected a value"),
        ('"\\q"', (1, 1), "not a JSON string"),
        ('"\n"', (1, 1), "expected a value"),
    ],
)
def test_what_is_not_json_is_refused_with_its_place(text, place, message) -> None:
    with pytest.raises(DocumentError, match=message) as caught:
        js(text)
    assert (caught.value.mark.line, caught.value.mark.column) == place


@pytest.mark.parametrize("read", [yaml, js])
def test_half_a_surrogate_pair_is_refused(read) -> None:
    with pytest.raises(DocumentError, match="half of a surrogate pair"):
        read('["\\ud83d"]')


def test_tabs_may_indent_json() -> None:
    assert bare(js('{\n\t"a":\t1\n}')) == {"a": ("INTEGER", "1")}


@pytest.mark.parametrize("read", [yaml, js])
@pytest.mark.parametrize("depth", [101, 5_000])
def test_nesting_is_bounded(read, depth) -> None:
    with pytest.raises(DocumentError, match="nested more than 100 deep"):
        read("[" * depth + "]" * depth)


def test_aliases_are_followed_and_what_they_unfold_to_is_bounded(monkeypatch) -> None:
    assert bare(yaml("a: &x {n: 1}\nb: *x"))["b"] == {"n": ("INTEGER", "1")}
    monkeypatch.setattr(documents, "MAX_PARTS", 10_000)
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(DocumentError, match="once its aliases are unfolded"):
        yaml("\n".join(levels))


def test_an_alias_to_what_is_around_it_is_refused() -> None:
    with pytest.raises(DocumentError):
        yaml("a: &x [*x]")


def test_text_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(documents, "MAX_TEXT_BYTES", 10)
    with pytest.raises(DocumentError, match="at most 10 are read"):
        js('"aaaaaaaaaaaa"')


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def pythonic(part):
    match part:
        case Scalar(kind=Kind.TEXT):
            return part.text
        case Scalar():
            return json.loads(part.text)
        case Items():
            return [pythonic(each) for each in part.items]
        case Entries():
            return {key.text: pythonic(value) for key, value in part.entries}


@given(JSON_VALUES, st.sampled_from([None, 2]), st.booleans())
def test_json_is_read_as_the_standard_library_reads_it(value, indent, ascii_only) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert pythonic(js(text)) == json.loads(text)
