from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stepgraph_server.core.expression_errors import ExpressionCode, ExpressionError
from stepgraph_server.core.expression_inputs import bind, dotted
from stepgraph_server.core.expressions import Expression
from stepgraph_server.core.work import MAX_NODE_WORK, Work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepgraph_server.core.expression_inputs import Measures


class Asked(dict[str, object]):
    """Variables that note which of them were read."""

    def __init__(self, content: dict[str, object]) -> None:
        super().__init__(content)
        self.read: list[str] = []

    def __getitem__(self, name: str) -> object:
        self.read.append(name)
        return super().__getitem__(name)

    def __iter__(self) -> Iterator[str]:
        return super().__iter__()


def bind_all(source: str, bindings: dict[str, object]) -> tuple[dict[str, object], Measures, int]:
    return bind(source, Expression.compile(source).names, bindings)


def test_only_what_is_named_is_read_and_measured() -> None:
    variables = Asked({"a": "text", "b": [1, 2], "c": "unread"})
    data, measures, size = bind_all("vars.a == 'x' && vars.b == []", {"vars": variables})
    assert sorted(variables.read) == ["a", "b"]
    assert data == {"vars": {"a": "text", "b": [1, 2]}}
    assert measures["vars", "b"][1] == 2
    assert size == sum(each for each, _ in measures.values())


def test_nothing_is_read_any_more_once_the_values_are_too_large_together() -> None:
    variables = Asked({f"v{number:03}": "x" * 250_000 for number in range(200)})
    with pytest.raises(ExpressionError) as caught:
        bind_all("size(vars) > 0", {"vars": variables})
    assert caught.value.code == ExpressionCode.COST
    assert len(variables.read) < 100


def test_a_name_is_shown_as_it_is_written() -> None:
    assert dotted(("vars", "a")) == "vars.a"
    assert dotted(("last_result", None)) == "last_result"


def test_what_a_node_evaluates_together_is_capped() -> None:
    expression = Expression.compile("vars.a.all(x, x == 1)")
    bindings = {"vars": {"a": [1] * 9_000}}
    work = Work()
    work.begin_node(edges=0)
    assert expression.evaluate(bindings, work) is True
    assert work.spend(MAX_NODE_WORK - work.done)
    with pytest.raises(ExpressionError) as caught:
        expression.evaluate(bindings, work)
    assert caught.value.code == ExpressionCode.COST
    assert "several nodes" in caught.value.hint


def test_twenty_fields_may_be_taken_out_of_a_large_document() -> None:
    document = {f"k{n}": {"a": "v" * 1_000, "b": [1] * 20} for n in range(90)}
    work = Work()
    work.begin_node(edges=0)
    for number in range(20):
        source = f"vars.d.k{number}.a"
        assert Expression.compile(source).evaluate({"vars": {"d": document}}, work) == "v" * 1_000
