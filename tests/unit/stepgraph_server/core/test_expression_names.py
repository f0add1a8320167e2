"""What is named statically is found; what is not counts as everything."""

from __future__ import annotations

import pytest

from stepgraph_server.core.expression_names import Path, Segment, reach
from stepgraph_server.core.expressions import Expression


def paths_of(source: str) -> list[str]:
    return [str(path) for path in Expression.compile(source).names.paths]


@pytest.mark.parametrize(
    ("source", "paths"),
    [
        ("true", []),
        ("vars.x", ["vars.x"]),
        ("vars.x.y[0]['a b']", ["vars.x", "vars.x.y", "vars.x.y[0]", 'vars.x.y[0]["a b"]']),
        ("has(vars.x.y)", ["vars.x"]),
        ("vars.x[iterations].z", ["vars.x", "vars.x[*].z"]),
        ("vars.x[1.0 == 1.0 ? 0 : 1].z", ["vars.x", "vars.x[*].z"]),
        ("vars[paradigm].z", ["vars[*].z"]),
        ("vars.x.all(i, i.y == 1)", ["vars.x", "vars.x[*].y"]),
        ("vars.x.filter(i, i.y).map(i, i.z)", ["vars.x", "vars.x[*].y", "vars.x[*].z"]),
        ("vars.x.map(i, i.y).map(i, i.z)", ["vars.x", "vars.x[*].y", "vars.x[*].y.z"]),
        ("[vars.x].map(i, i.y)", ["vars.x", "vars.x.y"]),
        ("[vars.x, vars.y].map(i, i.z)", ["vars.x", "vars.y"]),
        ("dyn(vars.x).y", ["vars.x", "vars.x.y"]),
        ("(true ? vars.x : vars.x).y", ["vars.x", "vars.x.y"]),
        ("(true ? vars.x : vars.y).z", ["vars.x", "vars.y"]),
        ("vars.x[true].y", ["vars.x"]),
        ("string(vars.x).size()", ["vars.x"]),
        (
            "decision.calls[0].name",
            ["decision.calls", "decision.calls[0]", "decision.calls[0].name"],
        ),
        ("last_result.ok", ["last_result.ok"]),
        ("{'a': vars.x}.a", ["vars.x"]),
    ],
)
def test_paths_are_found(source: str, paths: list[str]) -> None:
    assert paths_of(source) == paths


def test_paths_stand_in_the_order_of_the_source() -> None:
    assert paths_of("vars.b == vars.a") == ["vars.b", "vars.a"]


@pytest.mark.parametrize(
    ("source", "ordered"),
    [
        ("vars.x.map(i, i)", ["vars.x"]),
        ("vars.x.all(i, i)", []),
        ("[1].map(i, i)", []),
        ("vars.x.map(i, i.y.map(j, j))", ["vars.x", "vars.x[*].y"]),
        ("vars.x.filter(i, true).map(i, i)", ["vars.x"]),
        ("(vars.x + vars.y).map(i, i)", []),
        ("vars.x.map(i, i.a).map(a, a.map(b, b))", ["vars.x", "vars.x[*].a"]),
        ("[[1]].map(l, l.map(x, x))", []),
    ],
)
def test_what_map_and_filter_go_over_is_found(source: str, ordered: list[str]) -> None:
    names = Expression.compile(source).names
    assert sorted(str(path) for path in names.ordered) == ordered


VALUE = {"a": [{"b": 1}, {"c": 2}, 3], "n": None}


@pytest.mark.parametrize(
    ("segments", "found"),
    [
        ((), [(VALUE, 0)]),
        (("a", 0, "b"), [(1, 3)]),
        (("a", None, "b"), [(1, 3), ({"c": 2}, 2), (3, 2)]),
        (("a", 3), [(VALUE["a"], 1)]),
        (("a", -1), [(VALUE["a"], 1)]),
        (("a", "b"), [(VALUE["a"], 1)]),
        ((0,), [(VALUE, 0)]),
        (("n", None), [(None, 1)]),
        ((None,), [(VALUE["a"], 1), (None, 1)]),
        (("x",), [(VALUE, 0)]),
    ],
)
def test_a_path_is_followed_as_far_as_it_goes(
    segments: tuple[Segment, ...], found: list[tuple[object, int]]
) -> None:
    assert list(reach(VALUE, segments)) == found


def test_a_path_can_be_cut_off() -> None:
    path = Path(segments=("vars", "a b", 0, None), position=3)
    assert str(path) == 'vars["a b"][0][*]'
    assert path.until(2) == Path(segments=("vars", "a b"), position=3)
