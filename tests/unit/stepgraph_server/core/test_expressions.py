"""Expressions are checked at registration, bounded in cost, and never quietly false."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stepgraph_server.core import expressions, json_text
from stepgraph_server.core.expression_names import ROOTS
from stepgraph_server.core.expression_tree import TreeUnreadable
from stepgraph_server.core.expressions import (
    MAX_SOURCE_CHARACTERS,
    Expression,
    ExpressionCode,
    ExpressionError,
    reads,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVER = Path(__file__).resolve().parents[4] / "server"
VARIABLES: dict[str, object] = {
    "n": 1,
    "big": 9007199254740993,
    "min": -(2**63),
    "half": 0.5,
    "spelled": json_text.parse("0.10"),
    "text": "abc",
    "none": None,
    "yes": True,
    "list": [1, "two", {"three": 3}],
    "object": {"b": 1, "a": [2]},
    "items": [{"n": n, "tags": ["x"]} for n in range(20)],
    "_approval": "abort",
    "_approval.review": "ok",
}
BINDINGS: dict[str, object] = {
    "vars": VARIABLES,
    "last_result": {"ok": True},
    "last_error": None,
    "decision": {"kind": "TOOL_CALLS", "text": "", "calls": [{"id": "1", "name": "f", "args": {}}]},
    "paradigm": "plan",
    "iterations": 3,
    "messages_count": 2,
    "last_message": "hello",
    "edge": {"traversals": 4},
}


def evaluate(source: str, bindings: Mapping[str, object] = BINDINGS) -> object:
    return Expression.compile(source).evaluate(bindings)


def refusal(source: str, bindings: Mapping[str, object] = BINDINGS) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        evaluate(source, bindings)
    assert len(str(caught.value)) < 3_000
    return caught.value


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("vars.n == 1 && iterations > 2", True),
        ("vars.n == 1.0", True),
        ("vars.text == 1", False),
        ("vars.none == null", True),
        ("vars.big", 9007199254740993),
        ("vars.min", -(2**63)),
        ("vars.big == 9007199254740993", True),
        ("vars.big == 9007199254740992", False),
        ("vars.spelled", 0.1),
        ("vars.object", {"a": [2], "b": 1}),
        ("vars.list[2].three", 3),
        ('vars["_approval.review"] == "ok"', True),
        ("has(vars.n) && !has(vars.nope)", True),
        ('"n" in vars && !("nope" in vars)', True),
        ("vars.list[vars.n]", "two"),
        ("size(vars)", len(VARIABLES)),
        ('vars.exists(name, name == "text")', True),
        ("vars.items.filter(i, i.n > 17).map(i, i.tags.map(t, t + '!'))", [["x!"], ["x!"]]),
        ("vars.items.map(i, i.n > 17, i.n)", [18, 19]),
        ("[[1, 2], [3]].map(l, l.map(x, x * 2))", [[2, 4], [6]]),
        ("dyn(vars.list).map(x, x == 1)", [True, False, False]),
        ("(vars.list + [4]).map(x, type(x) == int)", [True, False, False, True]),
        ("(vars.yes ? vars.list : vars.list).map(x, 1)", [1, 1, 1]),
        ("(vars.yes ? [1] : [2]).map(x, x)", [1]),
        ("vars.object.all(k, vars.object[k] != 3)", True),
        ("vars.items.exists_one(i, i.n == 3)", True),
        ('decision.kind == "TOOL_CALLS" && decision.calls[0].name == "f"', True),
        ("edge.traversals < 5 && messages_count == 2 && paradigm == 'plan'", True),
        ("last_error == null && last_result.ok && last_message.startsWith('he')", True),
        ("vars.nope == 1 || true", True),
        ("1u", 1),
        ("{'b': 1, 'a': [null, 1.5]}", {"a": [None, 1.5], "b": 1}),
        (r"vars.text.matches('^[a-c]+$') && vars.text.contains('b')", True),
        ("'ü' + vars.text", "üabc"),
        ("string(timestamp(0))", "1970-01-01T00:00:00Z"),
        ("bytes('x') == b'x'", True),
        ("-vars.n + 2 - 1 ", 0),
        ("// a comment )))\n 'a (( b'.size() + '''(((\n'''.size()", 10),
    ],
)
def test_it_evaluates(source: str, expected: object) -> None:
    value = evaluate(source)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("source", "code", "position", "text"),
    [
        ("vars.nope == 1", "UNKNOWN_NAME", 4, "vars has no nope; there is _approval"),
        ("vars.txet == 1", "UNKNOWN_NAME", 4, "did you mean text?"),
        ("vars._approval2.review", "UNKNOWN_NAME", 4, "has no _approval2"),
        ("vars.list[2].four", "UNKNOWN_NAME", 12, "vars.list[2] has no four; there is three"),
        ("vars.items.map(i, i.m)", "UNKNOWN_NAME", 19, "vars.items[*] has no m"),
        ("vars.object['c']", "UNKNOWN_NAME", 11, "vars.object has no c; there is a, b"),
        ("vars.object[vars.text]", "UNKNOWN_NAME", None, "there is no key abc"),
        ("vars.list[7]", "UNKNOWN_NAME", None, "no item 7 in a list of 3"),
        ("vars.list['a']", "TYPE", None, "expected integer"),
        ("vars.text.x", "TYPE", 9, "vars.text is a text and has no fields"),
        ("vars.none.x", "TYPE", 9, "vars.none is null"),
        ("[1].map(i, dyn(i).x)", "TYPE", None, "a field is read of what has none"),
        ("vars.text < 1", "TYPE", None, "< can't take string, int64"),
        ("vars.n + 1.5", "TYPE", None, "convert one side"),
        ("vars.n && true", "TYPE", None, "something else than true or false"),
        ("vars.n ? 1 : 2", "TYPE", None, "something else than true or false"),
        ("int(vars.text)", "TYPE", None, "cannot convert"),
        ("vars.object.map(k, k)", "TYPE", 4, "goes over vars.object, which is an object"),
        ("vars.filter(k, true)", "TYPE", 0, "goes over vars, which is an object"),
        ("vars.n / 0", "OVERFLOW", None, "divide by zero"),
        ("vars.n % 0", "OVERFLOW", None, "modulus by zero"),
        ("9223372036854775807 + vars.n", "OVERFLOW", None, "overflow"),
        ("int(1e30 + vars.half)", "OVERFLOW", None, "range"),
        ("0.0 / 0.0", "OVERFLOW", None, "nan, which is not a JSON number"),
        ("[1.0 / 0.0]", "OVERFLOW", None, "inf, which is not a JSON number"),
        ("timestamp(0)", "TYPE", None, "string() gives its text"),
        ("{'a': 1, 'a': 2}", "TYPE", None, "duplicate key"),
        ("[b'a']", "TYPE", None, "gives bytes"),
        ("{1: 2}", "TYPE", None, "a key that is not text"),
    ],
)
def test_a_failed_evaluation_says_why(
    source: str, code: str, position: int | None, text: str
) -> None:
    error = refusal(source)
    assert (error.code, error.position) == (code, position)
    assert text in str(error)
    assert source in str(error)


@pytest.mark.parametrize(
    ("source", "code", "position", "text"),
    [
        (
            "foo == 1",
            "UNKNOWN_NAME",
            0,
            "there is no name foo; there is decision, edge, iterations",
        ),
        ("true &&\n varz.n", "UNKNOWN_NAME", 13, "did you mean vars?"),
        ("last_eror == null", "UNKNOWN_NAME", 0, "did you mean last_error?"),
        ("vars.text.replace('a', 'b')", "UNKNOWN_NAME", 17, "there is no function replace"),
        ("decision.kynd", "UNKNOWN_NAME", 8, "did you mean kind?"),
        ("has(edge.count)", "UNKNOWN_NAME", 3, "edge has no count; there is traversals"),
        ("iterations == 'a'", "TYPE", 11, "== can't take int, string"),
        ("size(3)", "TYPE", 4, "size can't take int"),
        ("1 +", "SYNTAX", 3, "Syntax error"),
        ("'a", "SYNTAX", 0, "Syntax error"),
        ("", "SYNTAX", None, "it is empty"),
        ("'\ud800'", "SYNTAX", 1, "surrogate"),
        ("google.protobuf.Struct{}", "TYPE", 0, "can't be made in an expression"),
        ("stepgraph.v1.Value{}", "UNKNOWN_NAME", None, "stepgraph"),
        ("[1].all(vars, vars > 0)", "TYPE", 7, "another name"),
        ("{'a': 1}.map(k, k)", "TYPE", 0, "whose keys have no order"),
        ("(vars.yes ? vars.list : vars.items).map(i, i)", "TYPE", 10, "go over a list"),
        ("vars.text.matches(vars.text)", "TYPE", 17, "must be a literal"),
        ("vars.text.matches('(')", "SYNTAX", 17, "invalid regular expression"),
        ("vars.text.matches('((a{1,100}){1,100})')", "COST", 17, "pattern is too large"),
        ("vars.text.matches(r'\\pL{20}')", "COST", 17, "pattern is too large"),
    ],
)
def test_what_can_be_found_at_registration_is_found_then(
    source: str, code: str, position: int | None, text: str
) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression.compile(source)
    assert caught.value.code == code
    assert text in str(caught.value)
    if position is not None:
        assert caught.value.position == position
    str(caught.value).encode()


TOO_LARGE = [
    "'" + "x" * 1_000_000 + "'",
    "(" * 10_000 + "1" + ")" * 10_000,
    "(" * 33 + "1" + ")" * 33,
    "[" * 2_000 + "]" * 2_000,
    "{1:" * 1_000 + "1" + "}" * 1_000,
    "vars" + ".x" * 2_000,
    "vars.x" + "[0]" * 1_300,
    "1" + "+1" * 2_000,
    "true?1:" * 570 + "1",
    "dyn(" * 40 + "1" + ")" * 40,
    "[1].map(x," * 300 + "1" + ")" * 300,
    "true" + "&&true" * 600,
    "!" * 5_000 + "true",
]


@pytest.mark.parametrize("source", TOO_LARGE, ids=range(len(TOO_LARGE)))
def test_size_and_nesting_are_bounded(source: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression.compile(source)
    assert caught.value.code == ExpressionCode.TOO_LARGE
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("source", ["!" * 4_000 + "true", "-" * 4_000 + "1", "- " * 2_000 + "1"])
def test_chains_that_the_parser_folds_do_no_harm(source: str) -> None:
    assert evaluate(source) in (True, 1)


TEN = "[0,1,2,3,4,5,6,7,8,9]"


def nested(macro: str, body: str, levels: int) -> str:
    for level in range(levels):
        body = f"{TEN}.{macro}(x{level}, {body})"
    return body


DEAR = [
    nested("all", "true", 9),
    nested("map", "1", 9),
    nested("all", "true", 5),
    "['a']" + ".map(x, x + x)" * 25,
    "[1]" + ".map(x, [x, x])" * 25,
    "vars.text.matches('(a{1,40}){1,30}')",
    "['a'].map(a, " + "+".join(["a"] * 20) + ")" + (".map(a, " + "+".join(["a"] * 20) + ")") * 8,
    "vars.items.map(a, vars.items.map(b, vars.items.map(c, a + b + c + [vars.text])))",
]


@pytest.mark.parametrize("source", DEAR, ids=range(len(DEAR)))
def test_what_would_never_end_is_refused(source: str) -> None:
    small = {**BINDINGS, "vars": {**VARIABLES, "items": [[n] for n in range(100)]}}
    assert refusal(source, small).code in (ExpressionCode.COST, ExpressionCode.TOO_LARGE)


@pytest.mark.parametrize(
    ("source", "variables"),
    [
        ("vars.a.map(x, x)", {"a": list(range(9_999))}),
        ("vars.a.all(x, true)", {"a": [1] * 20_000}),
        ("vars.a.all(x, x in vars.b)", {"a": list(range(5_000)), "b": list(range(5_000))}),
        ("vars.a.contains(vars.b)", {"a": "a" * 1_000_000, "b": "a" * 500_000 + "b"}),
        ("vars.a.matches('(?i)(a|b|ab|ba){0,90}c')", {"a": "ab" * 500_000}),
        ("vars.a.map(x, vars.b + vars.b)", {"a": [1] * 500, "b": "x" * 250_000}),
        ("[1, 2, 3].map(x, vars.a)", {"a": ["x" * 1_000_000] * 100}),
        ("vars.a", {"a": [1] * 1_000_000}),
    ],
)
def test_large_values_are_refused_before_they_cost(source: str, variables: object) -> None:
    error = refusal(source, {"vars": variables})
    assert error.code == ExpressionCode.COST
    assert error.name in ("vars.a", "vars.b", "")


@pytest.mark.parametrize(
    ("source", "variables"),
    [
        ("size(vars.a) > 3", {"a": [1] * 30_000}),
        ("vars.a.all(x, x == 1)", {"a": [1] * 9_000}),
        ("vars.a.filter(i, i.ok).map(i, i.n)", {"a": [{"ok": True, "n": n} for n in range(500)]}),
        ("vars.a.contains('needle')", {"a": "x" * 250_000}),
        ("vars.a.matches('^[a-z]+$')", {"a": "x" * 250_000}),
        ("vars.a == vars.b", {"a": "x" * 250_000, "b": "y" * 250_000}),
        ("vars.a.exists(x, x.id == vars.b)", {"a": [{"id": n} for n in range(2_000)], "b": 1}),
        ("vars.a.all(x, x in vars.b)", {"a": list(range(200)), "b": list(range(200))}),
    ],
)
def test_usual_work_on_large_values_is_allowed(source: str, variables: object) -> None:
    evaluate(source, {"vars": variables})


def test_a_regular_expression_takes_linear_time() -> None:
    variables = {"a": "a" * 50_000 + "b"}
    assert evaluate("vars.a.matches('(a+)+$')", {"vars": variables}) is False


def test_values_are_never_evaluated() -> None:
    for text in ("{{n}}", "${1+1}", "1 + 1", "__import__('os')"):
        assert evaluate("vars.t", {"vars": {"t": text}}) == text


@pytest.mark.parametrize(
    "source",
    ["vars.__class__", "vars.text.__class__.__mro__", "vars.text.upper()", "__import__('os')"],
)
def test_the_host_is_out_of_reach(source: str) -> None:
    assert refusal(source).code in (ExpressionCode.UNKNOWN_NAME, ExpressionCode.TYPE)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, [2**64], {"a": {"b": 10**30}}])
def test_integers_beyond_64_bits_are_an_error(value: object) -> None:
    error = refusal("vars.x == 1", {"vars": {"x": value}})
    assert (error.code, error.name) == (ExpressionCode.OVERFLOW, "vars.x")
    assert evaluate("vars.y == 1", {"vars": {"x": value, "y": 1}}) is True


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({1: 2}, "TYPE"),
        ("a\0b", "TYPE"),
        ({"a\0b": 1}, "TYPE"),
        ((1,), "TYPE"),
        ([b"x"], "TYPE"),
        ("\ud800", "TYPE"),
        (["\ud800"], "TYPE"),
    ],
)
def test_what_is_not_json_is_an_error(value: object, code: str) -> None:
    assert refusal("vars.x == 1", {"vars": {"x": value}}).code == code


def test_deep_values_are_an_error() -> None:
    value: object = 1
    for _ in range(50_000):
        value = [value]
    assert refusal("vars.x", {"vars": {"x": value}}).code == ExpressionCode.COST
    for _ in range(49_999 - 60):
        value = value[0]  # type: ignore[index]
    assert refusal("[[[[vars.x]]]]", {"vars": {"x": value}}).code == ExpressionCode.TYPE


def test_only_what_is_named_is_looked_up() -> None:
    class Lazy(dict[str, object]):
        def __getitem__(self, key: str) -> object:
            asked.append(key)
            return super().__getitem__(key)

    asked: list[str] = []
    bindings = Lazy(BINDINGS, vars=Lazy(VARIABLES))
    assert evaluate("vars.n == 1 && has(vars.nope) == false && iterations == 3", bindings) is True
    assert sorted(asked) == ["iterations", "n", "vars"]


def test_a_root_without_a_value_is_an_error() -> None:
    error = refusal("iterations > 1", {"vars": {}})
    assert (error.code, error.name, error.known) == ("UNKNOWN_NAME", "iterations", ("vars",))


def test_an_error_lists_all_variables_though_only_some_were_converted() -> None:
    variables = {f"v{n:03}": 2**70 for n in range(100)}
    error = refusal("vars.nope", {"vars": variables})
    assert error.known == tuple(f"v{n:03}" for n in range(20))
    assert error.known_count == 100
    assert "v019 and 80 more" in str(error)
    hint = refusal("vars._approval.review", {"vars": {"_approval.review": "ok"}}).hint
    assert hint == 'write vars["_approval.review"]'


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("vars.n", "a number"),
        ("vars.text", "a text"),
        ("null", "null"),
        ("[1]", "a list"),
        ("{'a':1}", "an object"),
    ],
)
def test_a_condition_must_be_true_or_false(source: str, kind: str) -> None:
    with pytest.raises(ExpressionError, match=f"it gives {kind}") as caught:
        Expression.compile(source).evaluate_bool(BINDINGS)
    assert caught.value.code == ExpressionCode.NOT_BOOL
    assert Expression.compile("vars.yes").evaluate_bool(BINDINGS) is True


@pytest.mark.parametrize(
    ("source", "names", "variables"),
    [
        ("true", set(), set()),
        ("vars.x == 1", {"vars"}, {"x"}),
        ('vars["x.y"].z == vars.x', {"vars"}, {"x.y", "x"}),
        ("has(vars.x.y)", {"vars"}, {"x"}),
        ('"x" in vars', {"vars"}, {"x"}),
        ("vars[paradigm]", {"vars", "paradigm"}, None),
        ("size(vars)", {"vars"}, None),
        ("vars.all(k, k != '')", {"vars"}, None),
        ("[1].map(x, x + iterations)", {"iterations"}, set()),
        ("edge.traversals + decision.calls.size()", {"edge", "decision"}, set()),
        ("type(last_message) == string", {"last_message"}, set()),
    ],
)
def test_roots_are_what_it_names(source: str, names: set[str], variables: set[str] | None) -> None:
    roots = Expression.compile(source).roots()
    assert roots.names == names
    assert roots.variables == variables


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("vars._approval == 'abort'", True),
        ('vars["_approval.review"] == "ok"', True),
        ('has(vars._approval) || "x" in vars', True),
        ("vars.x == '_approval'", False),
        ("size(vars) > 3", False),
        ("true", False),
    ],
)
def test_reads_tells_which_names_stand_in_the_source(source: str, expected: bool) -> None:
    expression = Expression.compile(source)
    assert reads(expression, lambda name: name.startswith("_approval")) is expected


def test_every_root_can_be_used() -> None:
    for root in ROOTS:
        assert evaluate(f"{root} == {root}") is True


def test_an_expression_is_compiled_once() -> None:
    assert Expression.compile("vars.n == 1") is Expression.compile("vars.n == 1")
    assert expressions._compile.cache_info().maxsize == 1_024


def test_the_longest_source_is_taken() -> None:
    assert evaluate("1" + " " * (MAX_SOURCE_CHARACTERS - 1)) == 1


def test_the_result_is_the_same_in_every_process() -> None:
    program = (
        "from stepgraph_server.core.expressions import Expression, ExpressionError\n"
        "d = {'vars': {'o': {c: 1 for c in 'zyxabc'}, 'l': [{'b': 1, 'a': 2}]}}\n"
        "for s in ('vars.o', 'vars.l.map(i, i)', \"{'q': 1, 'b': 2, 'a': 3}\", 'vars.o.map(k, k)'):\n"
        "    try: print(Expression.compile(s).evaluate(d))\n"
        "    except ExpressionError as e: print(e)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": str(SERVER)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(4)
    }
    assert len(outputs) == 1
    assert "{'a': 1, 'b': 1, 'c': 1" in outputs.pop()


def test_a_tree_that_can_not_be_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(_: bytes) -> object:
        raise TreeUnreadable(what="a new kind")

    monkeypatch.setattr(expressions, "decode", unreadable)
    with pytest.raises(ExpressionError, match="not offered: a new kind") as caught:
        Expression.compile("vars.never_compiled_before")
    assert caught.value.code == ExpressionCode.SYNTAX
