"""The bound holds: it grows as costs do, and is low enough for usual work."""

from __future__ import annotations

import pytest

from stepgraph_server.core.expression_cost import NODE_SIZE, Measure, cost, pattern_weight
from stepgraph_server.core.expression_tree import Call, Constant, Name, Node
from stepgraph_server.core.expressions import Expression

BUDGET = 64_000_000


def bound(source: str, *, size: int = 10_000, width: int = 30) -> float:
    measure = Measure(size=size, width=width)
    return cost(Expression.compile(source).tree.root, lambda _root, _name: measure, size).total


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ("true", "true && true"),
        ("vars.a == 1", "vars.a + vars.b == 'x'"),
        ("vars.a + vars.b", "vars.a + vars.b + vars.c"),
        ("vars.a.all(x, true)", "vars.a.all(x, vars.b.all(y, true))"),
        ("vars.a.all(x, true)", "vars.a.map(x, x)"),
        ("vars.a.contains('x')", "vars.a.contains(vars.b)"),
        ("vars.a.matches('a')", "vars.a.matches('a{100}')"),
        ("has(vars.a)", "vars.a"),
        ("size(vars.a) == 1", "string(vars.a) == 'x'"),
        ("vars.a.map(x, x)", "vars.a.map(x, x + x)"),
        ("vars.a.map(x, 1)", "vars.a.map(x, vars.b)"),
        ("'x' in vars", "'x' in vars.a"),
        ("vars.a[0]", "[vars.a, vars.a]"),
    ],
)
def test_what_does_more_costs_more(less: str, more: str) -> None:
    assert bound(less) < bound(more)


@pytest.mark.parametrize(
    "source",
    [
        "vars.a == 'x'",
        "vars.a.map(x, x.map(y, y))",
        "vars.a.exists(x, x in vars.b)",
        "vars.a + vars.a",
    ],
)
def test_the_bound_grows_with_the_size(source: str) -> None:
    sizes = [1_000, 10_000, 100_000, 1_000_000]
    bounds = [bound(source, size=size, width=size // NODE_SIZE) for size in sizes]
    assert bounds == sorted(bounds)
    assert bounds[0] < bounds[-1]


def test_the_bound_grows_with_the_width() -> None:
    widths = [bound("vars.a.map(x, x)", size=10**6, width=width) for width in (1, 100, 3_000)]
    assert widths == sorted(set(widths))


@pytest.mark.parametrize("count", [5, 10, 20])
def test_doubling_is_seen(count: int) -> None:
    for start, step in (("['a']", ".map(x, x + x)"), ("[1]", ".map(x, [x, x])")):
        assert bound(start + step * 4) > 1.5 * bound(start + step * 3)
    grown = "vars.a.map(x, " + " + ".join(["x"] * count) + ")"
    assert bound(grown) > count * 10_000


def test_loops_share_one_budget_of_iterations() -> None:
    # A thousand million rounds are never made, so they are not counted either.
    source = "true"
    for level in range(6):
        source = f"vars.a.all(x{level}, {source})"
    assert bound(source) < BUDGET


def test_a_loop_over_many_small_lists_costs_what_they_are_large() -> None:
    nested = bound("vars.a.map(x, x.map(y, y))", size=100_000, width=100)
    assert nested < BUDGET / 5


@pytest.mark.parametrize(
    ("pattern", "weight"),
    [
        ("", 0),
        ("abc", 3),
        ("^[a-z]+$", 4),
        (r"\d{4}-\d{2}", 7),
        ("(ab){3}", 9),
        ("(a{1,30}){1,40}", 31 * 40),
        ("a{1000}", 1_000),
        ("a{2,}", 2),
        ("a{,5}", 5),
        ("a{0}", 1),
        ("a{123456789}", 12_345),
        (r"\pL", 100),
        (r"\p{Greek}{2}", 200),
        (r"[\]a{9}]", 1),
        (r"\(\)", 2),
        ("((((", 0),
        ("))))", 4),
        ("[a", 2),
        ("a\nb", 3),
    ],
)
def test_the_weight_of_a_pattern(pattern: str, weight: int) -> None:
    assert pattern_weight(pattern) == weight


@pytest.mark.parametrize("pattern", ["(" * 4_000, "[" * 4_000, "{1,1}" * 800, "\\" * 4_000])
def test_weighing_takes_linear_time(pattern: str) -> None:
    assert pattern_weight(pattern) >= 0


def test_an_input_that_is_not_measured_as_its_own_is_taken_for_its_root() -> None:
    source = "vars.a.map(x, x) == vars[paradigm]"
    measures = {("vars", "a"): Measure(size=1_000, width=3)}
    whole = Measure(size=5_000, width=10)
    root = Expression.compile(source).tree.root
    assert cost(root, lambda root, name: measures.get((root, name), whole), 6_000).total > 0


def test_a_pattern_that_is_not_a_literal_counts_as_the_largest() -> None:
    def matching(pattern: Node) -> float:
        text = Constant(id=1, value="text")
        return cost(Call(id=2, function="matches", args=(text, pattern)), nothing, 0).total

    unknown = Name(id=3, name="paradigm")
    assert matching(Constant(id=3, value="a{900}")) < matching(unknown)


def nothing(_root: str, _name: str | None) -> Measure:
    return Measure(size=NODE_SIZE, width=0)
