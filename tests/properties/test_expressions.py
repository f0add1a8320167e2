"""For all sources and values: an expression gives a value or one of its own errors, within its bound."""

from __future__ import annotations

import resource
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from stepgraph_server.core import json_text
from stepgraph_server.core.expressions import Expression, ExpressionError

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES = st.recursive(
    st.none() | st.booleans() | INT64 | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(TEXTS, below, max_size=4),
    max_leaves=12,
)
ANYTHING = (
    VALUES
    | st.integers()
    | st.just(float("nan"))
    | st.just("\ud800")
    | st.just("a\0b")
    | st.just([b"x"])
)
FRAGMENTS = [
    "vars",
    ".x",
    "['x']",
    ".",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "?",
    "!",
    "-",
    "+",
    "*",
    "/",
    "%",
    "==",
    "<",
    "&&",
    "||",
    "in",
    "has",
    "size",
    ".map(i,",
    ".all(i,",
    ".filter(i,",
    ".matches('a+')",
    ".contains('a')",
    "1",
    "1.5",
    "1u",
    "'a'",
    '"b"',
    "'''c'''",
    "r'd'",
    "b'e'",
    "//",
    "\n",
    "null",
    "true",
    "i",
    "@",
    "`",
    "\\",
    "é",
    "edge",
    "foo",
]
SOURCES = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)


def run(source: str, variables: object) -> object:
    try:
        return Expression.compile(source).evaluate({"vars": variables, "edge": {"traversals": 1}})
    except ExpressionError as error:
        return error


@given(VALUES)
def test_values_come_back_as_they_are(value: object) -> None:
    assert run("vars.x", {"x": value}) == value
    assert run("[vars.x, {'a': vars.x}]", {"x": value}) == [value, {"a": value}]
    assert run("vars.x == vars.y", {"x": value, "y": value}) is True


@given(TEXTS)
def test_a_text_is_never_evaluated(text: str) -> None:
    assert run("vars.x", {"x": text}) == text
    assert run(f"'a' + {json_text.dump('b')} + vars.x", {"x": text}) == "ab" + text


@given(SOURCES | st.text(max_size=30), st.dictionaries(st.sampled_from(["x", "y"]), ANYTHING))
@settings(max_examples=500)
def test_nothing_but_values_and_its_own_errors_come_out(source: str, variables: object) -> None:
    found = run(source, variables)
    if isinstance(found, ExpressionError):
        assert len(str(found).encode()) < 4_000
    else:
        json_text.dump(found)


STEPS = st.sampled_from(
    [
        "{}.map({v}, {v})",
        "{}.map({v}, [{v}, {v}])",
        "{}.map({v}, {v} + {v})",
        "{}.filter({v}, {v} == {v})",
        "[{}].map({v}, vars.list.map(w, {v}))",
        "vars.list.map({v}, {})",
        "[{}, {}]",
        "({} + {})",
        "({} == vars.list)",
        "vars.list.all({v}, {v} in {})",
        "vars.text.contains(string({}))",
        "dyn({})",
        "{}[0]",
        "{{'a': {}, 'b': {}}}",
    ]
)


@given(
    st.sampled_from(["vars.list", "vars.text", "vars.lists", "[1]", "'a'"]),
    st.lists(STEPS, max_size=8),
    st.sampled_from([3, 100, 3_000, 50_000]),
)
@settings(max_examples=300)
def test_no_evaluation_is_long_or_large(start: str, steps: list[str], size: int) -> None:
    source = start
    for level, step in enumerate(steps):
        source = step.format(source, source, v=f"v{level}")
    variables = {
        "list": list(range(size)),
        "text": "a" * size,
        "lists": [["a"] * 10] * (size // 10),
    }
    began = time.process_time()
    run(source[:5_000], variables)
    # Ten times what is promised, for slow machines; what is unbounded takes a thousand times as long.
    assert time.process_time() - began < 1.5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 * 1024 * 1024
