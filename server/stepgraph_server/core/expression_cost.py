"""An upper bound of what evaluating an expression costs, known before it is evaluated.

The CEL library bounds iterations (10,000 per evaluation, all loops together), the depth of expressions, and regular
expressions (RE2); it does not bound the size of values: `['x'].map(s, s + s).map(s, s + s)…` doubles at each step. Stopping an
evaluation half-way is not possible either. So its cost is bounded beforehand, by walking its tree with the *sizes* of its
inputs in place of the inputs.

The bound. The size of each node is a linear form over the loop variables in scope: `2·s + 5` for `s + s` and five bytes.
Linear is enough, since CEL only concatenates, wraps and selects. Beside its size, the *width* of a value is known: the number
of items of the longest list or object in it; a loop has no more rounds than that. A loop variable is known by its largest size, and by the sum
of its sizes over all iterations: the items of a list together are no larger than the list, so a loop over a list costs what
the list is large, not its length times its size. Nested loops share the library's budget, so nothing runs more often than that.

One unit is about a nanosecond: a byte that is looked at or copied. Sizes count bytes, plus `NODE_SIZE` per value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, assert_never

from stepgraph_server.core.expression_tree import (
    Call,
    Constant,
    Fold,
    ListOf,
    MapOf,
    Name,
    Node,
    Select,
    static_variable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Measures: TypeAlias = Callable[[str, str | None], "Measure"]
    """What a root, or one of the variables, measures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How large an input is.

    Attributes:
        size: Its bytes, plus `NODE_SIZE` per value in it.
        width: The number of items of the longest list or object in it.
    """

    size: float
    width: float


COST_BUDGET: Final = 48_000_000
"""In units of at most a nanosecond, in practice less than half of one: what an evaluation may take at worst, and about how
many bytes it may build."""

MAX_ITERATIONS: Final = 10_000
"""How many iterations one evaluation has, all loops together; enforced by the CEL library."""

NODE_SIZE: Final = 256
"""What one JSON value weighs beside its text: converting and comparing it takes that many nanoseconds."""

_STEP_COST: Final = 128
_MATCH_COST_PER_BYTE: Final = 4
_COMPILE_COST: Final = 3_000
_MAX_PATTERN_WEIGHT: Final = 1_000
_RESULT_COST: Final = 4
_INPUT_COST: Final = 3

_APPEND_COST: Final = 64
"""Of map and filter, per item that is in the list already: the library copies the list when it appends to it."""


def pattern_weight(pattern: str) -> int:
    """Estimate how many instructions a regular expression compiles to; it says nothing on whether it is valid.

    Counted repetitions multiply: `(a{1,30}){1,30}` is short and large.
    """
    groups = [0]
    last = 0
    for token in _PATTERN_TOKEN.finditer(pattern):
        text = token.group()
        if text == "(":
            groups.append(0)
            continue
        if token["times"] is not None:
            groups[-1] += last * max(int(token["times"][:5]) - 1, 0)
            last *= max(int(token["times"][:5]), 1)
            continue
        if text == ")" and len(groups) > 1:
            last = groups.pop() + 1
        else:
            last = _UNICODE_CLASS_WEIGHT if text[:2] in ("\\p", "\\P") else 1
        groups[-1] += last
    return sum(groups)


_UNICODE_CLASS_WEIGHT: Final = 100
_PATTERN_TOKEN: Final = re.compile(
    r"\{(?:\d*,)?(?P<times>\d+),?\}|\\[pP](?:\{[^}]*\}|.)|\\.|\[(?:\\.|[^\]\\])*\]|.", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """A size: a constant, and factors of the sizes of loop variables (by the id of their fold); and a width."""

    constant: float = 0
    width: float = 0
    factors: Mapping[int, float] = field(default_factory=dict)


_SCALAR: Final = _Form(constant=NODE_SIZE)


def _plus(forms: Iterable[_Form]) -> _Form:
    constant = width = 0.0
    factors: dict[int, float] = {}
    for form in forms:
        constant += form.constant
        width += form.width
        for key, factor in form.factors.items():
            factors[key] = factors.get(key, 0) + factor
    return _Form(constant=constant, width=width, factors=factors)


def _either(left: _Form, right: _Form) -> _Form:
    keys = left.factors.keys() | right.factors.keys()
    return _Form(
        constant=max(left.constant, right.constant),
        width=max(left.width, right.width),
        factors={key: max(left.factors.get(key, 0), right.factors.get(key, 0)) for key in keys},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where in the nest of loops a node stands.

    Attributes:
        times: How often it is evaluated, at most.
        names: The loop variables and accumulators in scope, and what their sizes are.
        largest: By fold, the largest size of its variable.
        total: By fold, the sum of the sizes of its variable over all `times`.
    """

    times: float
    names: Mapping[str, _Form]
    largest: Mapping[int, float]
    total: Mapping[int, float]

    def largest_of(self, form: _Form) -> float:
        return form.constant + sum(f * self.largest[key] for key, f in form.factors.items())

    def total_of(self, form: _Form) -> float:
        return form.constant * self.times + sum(
            f * self.total[key] for key, f in form.factors.items()
        )


class Cost(NamedTuple):
    """What evaluating an expression costs at most, in units.

    Attributes:
        total: All of it.
        of_result: The part of it for taking over the result. It is the vaguest one, since what is selected out of a value
            counts as large as the value; of a small result it is known afterwards that it was not spent.
    """

    total: float
    of_result: float


def cost(root: Node, measures: Measures, total_size: float) -> Cost:
    """Bound what evaluating an expression costs.

    `measures` bounds each input, and `total_size` all that are converted together.
    """
    estimate = _Estimate(measures)
    place = _Place(times=1, names={}, largest={}, total={})
    result = estimate.visit(root, place)
    of_result = _RESULT_COST * place.total_of(result)
    return Cost(_INPUT_COST * total_size + estimate.spent + of_result, of_result)


class _Estimate:
    """One walk over a tree. `visit` gives the size of a node's value and adds what computing it costs."""

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self.spent = 0.0

    def visit(self, node: Node, place: _Place) -> _Form:
        """Bound the size of a node's value, and count its cost."""
        self.spent += _STEP_COST * place.times
        match node:
            case Constant():
                return _constant_form(node)
            case Name():
                known = place.names.get(node.name)
                return known or _input(self._measures(node.name, None))
            case Select():
                return self._select(node, place)
            case Call():
                return self._call(node, place)
            case ListOf() | MapOf():
                forms = [self.visit(item, place) for item in node.items]
                width = max([len(forms), *(form.width for form in forms)])
                whole = replace(_plus([_SCALAR, *forms]), width=width)
                self.spent += place.total_of(whole)
                return whole
            case Fold():
                return self._fold(node, place)
            case _:
                assert_never(node)

    def _select(self, node: Select, place: _Place) -> _Form:
        variable = static_variable(node)
        if variable is not None and "vars" not in place.names:
            return self._variable(variable, tests_presence=node.tests_presence)
        operand = self.visit(node.operand, place)
        return _SCALAR if node.tests_presence else operand

    def _variable(self, name: str, *, tests_presence: bool) -> _Form:
        return _SCALAR if tests_presence else _input(self._measures("vars", name))

    def _call(self, node: Call, place: _Place) -> _Form:
        variable = static_variable(node)
        if variable is not None and "vars" not in place.names:
            return self._variable(variable, tests_presence=node.function == "@in")
        forms = [self.visit(arg, place) for arg in node.args]
        match node.function:
            case "_[_]":
                return forms[0]
            case "_?_:_":
                return _either(forms[1], forms[2])
            case "_+_":
                whole = _plus(forms)
                self.spent += place.total_of(whole)
                return whole
            case "string" | "bytes":
                # Text is at most quoted or widened.
                whole = _plus([_SCALAR, *forms, *forms, *forms, *forms])
                self.spent += place.total_of(whole)
                return whole
            case "dyn":
                return forms[0]
            case _:
                self._scalar(node, forms, place)
                return _SCALAR

    def _scalar(self, node: Call, forms: list[_Form], place: _Place) -> None:
        """Count the cost of a call whose value is small, whatever it is given."""
        match node.function:
            case "_&&_" | "_||_" | "!_" | "@not_strictly_false":
                pass
            case "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "startsWith" | "endsWith":
                # It looks no further than the smaller of the two.
                self.spent += min(place.total_of(form) for form in forms)
            case "contains":
                # The search of the standard library takes the product of both lengths at worst, in large strides.
                strides = 1 + place.largest_of(forms[1]) / 64
                self.spent += place.total_of(forms[0]) * strides
            case "matches":
                self._matches(node, forms[0], place)
            case _:
                # Sizes, memberships, arithmetic, numbers and times: once over the arguments.
                self.spent += place.total_of(_plus(forms))

    def _matches(self, node: Call, text: _Form, place: _Place) -> None:
        pattern = node.args[1]
        weight = _MAX_PATTERN_WEIGHT
        if isinstance(pattern, Constant) and isinstance(pattern.value, str):
            weight = pattern_weight(pattern.value)
        # The library compiles the pattern anew each time; matching is linear in the text, for each instruction.
        self.spent += weight * (
            _COMPILE_COST * place.times + _MATCH_COST_PER_BYTE * place.total_of(text)
        )

    def _fold(self, node: Fold, place: _Place) -> _Form:
        items = self.visit(node.items, place)
        start = self.visit(node.start, place)
        rounds = min(MAX_ITERATIONS, items.width + 1, place.largest_of(items) / NODE_SIZE + 1)
        shared = place.total_of(items) / NODE_SIZE + place.times
        times = min(MAX_ITERATIONS, place.times * rounds, shared)
        inside = self._inside(node, place, items, rounds=rounds, times=times)
        self.visit(node.condition, inside)
        # While it loops the accumulator counts as empty, so that a step is what one round adds.
        step = self.visit(node.step, inside)
        grown = _SCALAR
        if node.collects:
            self.spent += _APPEND_COST * rounds * times
            grown = _plus([start, _summed(node.id, step, items, rounds)])
            grown = replace(grown, width=max(rounds, step.width))
        after = replace(place, names={**place.names, node.accumulator: grown})
        return self.visit(node.result, after)

    def _inside(
        self, node: Fold, place: _Place, items: _Form, *, rounds: float, times: float
    ) -> _Place:
        largest = {**place.largest, node.id: place.largest_of(items)}
        total = {
            key: min(total * rounds, place.largest[key] * times)
            for key, total in place.total.items()
        }
        total[node.id] = place.total_of(items)
        names = {
            **place.names,
            node.variable: _Form(width=items.width, factors={node.id: 1}),
            node.accumulator: _Form(),
        }
        return _Place(times=times, names=names, largest=largest, total=total)


def _summed(fold_id: int, step: _Form, items: _Form, rounds: float) -> _Form:
    """Sum up a size over all rounds of a fold.

    The parts that depend on the loop variable sum up to no more than `items`. What each round adds anew is counted
    by the number of rounds, again as a form of `items`, so that lists of lists are not taken for squares.
    """
    per_size = step.factors.get(fold_id, 0)
    fixed = step.constant
    if rounds < MAX_ITERATIONS:
        per_size += step.constant / NODE_SIZE
    else:
        fixed *= rounds
    factors = {key: factor * rounds for key, factor in step.factors.items() if key != fold_id}
    scaled = {key: factor * per_size for key, factor in items.factors.items()}
    return _plus(
        [
            _Form(constant=fixed + items.constant * per_size, factors=factors),
            _Form(factors=scaled),
        ]
    )


def _input(measure: Measure) -> _Form:
    return _Form(constant=measure.size, width=measure.width)


def _constant_form(node: Constant) -> _Form:
    if isinstance(node.value, (str, bytes)):
        return _Form(constant=NODE_SIZE + 4 * len(node.value))
    return _SCALAR
