"""What is written as YAML is read back as it was, by our reader and by the library's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from stepgraph_client.documents import Entries, Kind, Scalar, read_document
from stepgraph_client.yaml_text import yaml_text

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["", "~", "null", "YES", "0x1f", "1e3", "1:30", ".inf", "...", "---", "a: b", "a #b", "a:", "- a", "it's", '"', "[x]",
    "{x}", "&a", "*a", "!x", "%x", "@x", "`x`", "|", ">", "?", "? a", "a\n\n", "a\n b\n", "a\n\nb", "\n", "2026-01-31", "<<", "="]
)  # fmt: skip
SCALARS = TEXTS | st.booleans() | st.integers() | st.floats(allow_nan=False)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXTS | st.text("ab", min_size=600, max_size=700), inner, max_size=3)
    ),
)


@given(st.dictionaries(TEXTS, TREES, max_size=4))
def test_any_tree_reads_back_as_it_was(tree) -> None:
    """Every text, number, list and mapping comes back equal and of its own type."""
    assert repr(YAML(typ="safe", pure=True).load(yaml_text(tree))) == repr(tree)


@given(TEXTS)
def test_a_text_is_never_taken_for_anything_else(text) -> None:
    """Our own reader sees text, whatever it looks like."""
    part = read_document(yaml_text({"key": text}), is_json=False)
    assert isinstance(part, Entries)
    (_, value) = part.entries[0]
    assert isinstance(value, Scalar)
    assert (value.kind, value.text) == (Kind.TEXT, text)


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        ({}, "{}\n"),
        ({"a": {}, "b": []}, "a: {}\nb: []\n"),
        ({"a": [["x"], {"b": 1, "c": [True]}]}, "a:\n  - - x\n  - b: 1\n    c:\n      - true\n"),
        ({"a": "x\n y\n"}, "a: |\n  x\n   y\n"),
        ({"a": ["x\ny"]}, "a:\n  - |-\n    x\n    y\n"),
        ({"a": 'x == "y"', "b": "y", "c": "1 > 0"}, "a: x == \"y\"\nb: \"y\"\nc: 1 > 0\n"),
        ({"a": '"x" == y'}, "a: '\"x\" == y'\n"),
    ],
)  # fmt: skip
def test_it_reads_as_people_write_it(tree, text) -> None:
    """Nothing is quoted that needs no quotes, and lists stand under their keys."""
    assert yaml_text(tree) == text
