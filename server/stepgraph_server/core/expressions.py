"""Conditions and values in CEL: compiled at registration, evaluated with a bounded cost.

The rules of this file:

- An expression sees the roots it names and nothing else: no host objects, no functions of ours, no messages.
- Whatever can be found when a graph is registered is found then, also that it would cost too much.
- An evaluation can't be stopped half-way, so it only starts if its bound (`expression_cost`) is within `COST_BUDGET`.
  The CEL library adds its own limits: depth 32, 10,000 iterations, RE2 for regular expressions.
- The same bindings give the same value in every process. Objects have no order in CEL, so results have sorted keys.
- An evaluation that goes wrong raises; it is never quietly false.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final, cast

from cel_expr_python import cel
from google.protobuf.descriptor_pool import DescriptorPool

from stepgraph_server.core import expression_cost, expression_errors
from stepgraph_server.core.expression_cost import COST_BUDGET, NODE_SIZE, Cost, Measure
from stepgraph_server.core.expression_errors import ExpressionCode, ExpressionError
from stepgraph_server.core.expression_inputs import bind, dotted
from stepgraph_server.core.expression_names import ROOTS, reach, read_names
from stepgraph_server.core.expression_tree import Call, Constant, TreeUnreadable, decode, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepgraph_server.core.expression_inputs import Key, Measures
    from stepgraph_server.core.expression_names import Names, Roots
    from stepgraph_server.core.expression_tree import Tree
    from stepgraph_server.core.json_text import JsonValue
    from stepgraph_server.core.work import Work

MAX_SOURCE_CHARACTERS: Final = 4_096
MAX_NESTING: Final = 32
MAX_NODES: Final = 1_000
"""Of the tree, in which a macro such as `all` counts about ten."""

_SMALL_INPUT: Final = 4_096
_MAX_PATTERN_WEIGHT: Final = 1_000
_MAX_RESULT_DEPTH: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expression:
    """A compiled expression. Made by `compile`; it holds no state, so one is shared by all that use its source.

    Attributes:
        source: The CEL that it was made of.
        program: What the library made of it.
        tree: Its checked tree.
        names: What it names.
        small_cost: What an evaluation may cost with inputs of at most `_SMALL_INPUT` in all.
    """

    source: str
    program: cel.Expression
    tree: Tree
    names: Names
    small_cost: Cost

    @staticmethod
    def compile(source: str) -> Expression:
        """Compile a source. Compiled expressions are kept, by source.

        Raises:
            ExpressionError: SYNTAX, TOO_LARGE, UNKNOWN_NAME for a root or function that does not exist, TYPE if an
                operation could never take its values, COST if it is too dear for even small values.
        """
        return _compile(source)

    def roots(self) -> Roots:
        """Tell what it reads; only that needs to be in the bindings."""
        return self.names.roots

    def evaluate(self, bindings: Mapping[str, object], work: Work | None = None) -> JsonValue:
        """Evaluate with values for the roots that it names, and count what that may cost.

        `bindings` maps each root to its JSON value, and `vars` to a mapping from each variable's name to its JSON
        value. Only what is named is taken out of these mappings, so they can be lazy; `vars` is listed to explain errors.

        Raises:
            ExpressionError: UNKNOWN_NAME, TYPE, OVERFLOW or COST.
        """
        data, measures, size = bind(self.source, self.names, bindings)
        bound = self.small_cost if size <= _SMALL_INPUT else _bound(self, measures)
        if work is not None and not work.spend(bound.total):
            raise self._error(
                ExpressionCode.COST,
                "with it, what the node evaluates could cost more than one node may",
                hint="spread expressions over several nodes, and take what is needed out of large values once",
            )
        for path in self.names.ordered:
            if any(
                isinstance(v, dict)
                for v, n in reach(data, path.segments)
                if n == len(path.segments)
            ):
                message = f"map() or filter() goes over {path}, which is an object; its keys have no order"
                raise self._error(ExpressionCode.TYPE, message, position=path.position)
        try:
            result = self.program.eval(data=data)
            value = cast("object", result.plain_value())  # the library's types say Any
        except (RuntimeError, ValueError) as error:
            raise expression_errors.of_evaluating(
                self.source, str(error), self.names, data
            ) from None
        if work is not None and _is_small(value):
            work.give_back(bound.of_result)
        if value is True or value is False:
            return value
        if isinstance(value, str) and result.type() == cel.Type.ERROR:
            raise self._explain(value, bindings, data)
        return _result(self, value, 0)

    def evaluate_bool(self, bindings: Mapping[str, object], work: Work | None = None) -> bool:
        """Evaluate a condition.

        Raises:
            ExpressionError: As for `evaluate`, and NOT_BOOL if it gives something else than true or false.
        """
        value = self.evaluate(bindings, work)
        if isinstance(value, bool):
            return value
        kind = expression_errors.kind_of(value)
        raise self._error(ExpressionCode.NOT_BOOL, f"it gives {kind}, not true or false")

    def _error(
        self, code: ExpressionCode, message: str, *, position: int | None = None, hint: str = ""
    ) -> ExpressionError:
        return ExpressionError(
            code=code, message=message, expression=self.source, position=position, hint=hint
        )

    def _explain(
        self, text: str, bindings: Mapping[str, object], data: dict[str, object]
    ) -> ExpressionError:
        # Only named variables were bound; an error should list all that exist.
        if "vars" in data:
            everything = dict.fromkeys(cast("Mapping[str, object]", bindings["vars"]))
            everything.update(cast("dict[str, object]", data["vars"]))
            data = {**data, "vars": everything}
        return expression_errors.of_evaluating(self.source, text, self.names, data)


def reads(expression: Expression, predicate: Callable[[str], bool]) -> bool:
    """Tell whether an expression names a variable that a predicate holds for.

    Only names that stand in the source count. An expression that goes over all variables, as `size(vars)` does, names none.
    """
    variables = expression.roots().variables
    return variables is not None and any(predicate(name) for name in variables)


# ---- compiling ---------------------------------------------------------------------------------


@cache
def _environment() -> cel.Env:
    kinds = {
        "vars": cel.Type.Map(cel.Type.STRING, cel.Type.DYN),
        "decision": cel.Type.Map(cel.Type.STRING, cel.Type.DYN),
        "paradigm": cel.Type.STRING,
        "iterations": cel.Type.INT,
        "messages_count": cel.Type.INT,
        "edge": cel.Type.Map(cel.Type.STRING, cel.Type.INT),
    }
    variables = {root: kinds.get(root, cel.Type.DYN) for root in ROOTS}
    # A pool of its own: the messages of this process are not to be seen.
    return cel.NewEnv(DescriptorPool(), variables=variables)


@lru_cache(maxsize=1_024)
def _compile(source: str) -> Expression:
    _check_source(source)
    try:
        program = _environment().compile(source)
        tree = decode(program.serialize())
    except (RuntimeError, ValueError) as error:
        raise expression_errors.of_compiling(source, str(error)) from None
    except TreeUnreadable as error:
        raise ExpressionError(
            code=ExpressionCode.SYNTAX, message=f"not offered: {error}", expression=source
        ) from error
    names = read_names(tree)
    _check_tree(source, tree, names)
    small_cost = _small_cost(tree)
    if small_cost.total > COST_BUDGET:
        raise ExpressionError(
            code=ExpressionCode.COST,
            message="it would cost too much even with small values",
            expression=source,
            hint="use fewer nested loops, and do not let texts or lists grow in them",
        )
    return Expression(source=source, program=program, tree=tree, names=names, small_cost=small_cost)


_TOKEN: Final = re.compile(
    r"""//[^\n]*|[rR]?(?:'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\"|'(?:[^\\'\n]|\\.)*'|"(?:[^\\"\n]|\\.)*")|[(\[{}\])]""",
    re.DOTALL,
)


def _check_source(source: str) -> None:
    """Refuse what is too long or too deep before a recursive parser sees it, whatever limits the library has itself."""
    if len(source) > MAX_SOURCE_CHARACTERS:
        message = f"it has {len(source)} characters, of at most {MAX_SOURCE_CHARACTERS}"
        raise ExpressionError(code=ExpressionCode.TOO_LARGE, message=message, expression=source)
    if not source.strip():
        raise ExpressionError(code=ExpressionCode.SYNTAX, message="it is empty", expression=source)
    try:
        source.encode()
    except UnicodeEncodeError as error:
        message = "it holds half of a surrogate pair"
        raise ExpressionError(
            code=ExpressionCode.SYNTAX,
            message=message,
            expression=ascii(source),
            position=error.start,
        ) from None
    depth = 0
    for token in _TOKEN.finditer(source):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token.group(), 0)
        if depth > MAX_NESTING:
            message = f"nested deeper than {MAX_NESTING} levels"
            raise ExpressionError(
                code=ExpressionCode.TOO_LARGE,
                message=message,
                expression=source,
                position=token.start(),
            )


def _check_tree(source: str, tree: Tree, names: Names) -> None:
    for problem in names.problems:
        raise ExpressionError(
            code=ExpressionCode.UNKNOWN_NAME if problem.name else ExpressionCode.TYPE,
            message=problem.message,
            expression=source,
            position=problem.position,
            hint=problem.hint or expression_errors.closest(problem.name, problem.known),
            name=problem.name,
            known=problem.known,
        )
    count = 0
    for node in walk(tree.root):
        count += 1
        if isinstance(node, Call) and node.function == "matches":
            _check_pattern(source, node, tree.positions.get(node.id))
    if count > MAX_NODES:
        message = f"it has {count} parts, of at most {MAX_NODES}"
        raise ExpressionError(code=ExpressionCode.TOO_LARGE, message=message, expression=source)


def _check_pattern(source: str, node: Call, position: int | None) -> None:
    """Refuse a regular expression that is computed, invalid or large.

    RE2 takes linear time, but linear in text times pattern; and a value that came from outside is never to be run, not
    even as a pattern.
    """
    pattern = node.args[1]
    code = ExpressionCode.TYPE
    if not isinstance(pattern, Constant) or not isinstance(pattern.value, str):
        message = "the pattern of matches() must be a literal"
    elif expression_cost.pattern_weight(pattern.value) > _MAX_PATTERN_WEIGHT:
        code = ExpressionCode.COST
        message = f"the pattern is too large: its repetitions come to more than {_MAX_PATTERN_WEIGHT} steps"
    else:
        tried = _pattern_probe().eval(data={"paradigm": pattern.value})
        if tried.type() != cel.Type.ERROR:
            return
        code = ExpressionCode.SYNTAX
        message = str(tried.plain_value()).partition(": ")[2]
    raise ExpressionError(code=code, message=message, expression=source, position=position)


@cache
def _pattern_probe() -> cel.Expression:
    return _environment().compile("''.matches(paradigm)")


def _small_cost(tree: Tree) -> Cost:
    any_input = Measure(size=_SMALL_INPUT, width=_SMALL_INPUT / NODE_SIZE)
    return expression_cost.cost(tree.root, lambda _root, _name: any_input, _SMALL_INPUT)


# ---- evaluating --------------------------------------------------------------------------------


def _bound(expression: Expression, measures: Measures) -> Cost:
    """Bound what an evaluation costs with values of this size. Raises ExpressionError if that is too much."""
    # Rounded up, so that values that grow a little from run to run find the answer in the cache.
    rounded = tuple(
        (key, _rounded(size), _rounded(width)) for key, (size, width) in measures.items()
    )
    bound = _cost(expression, rounded)
    if bound.total <= COST_BUDGET:
        return bound
    # What rounding alone refuses is looked at as it is.
    bound = _cost(expression, tuple((key, *measure) for key, measure in measures.items()))
    if bound.total <= COST_BUDGET:
        return bound
    name = dotted(max(measures, key=lambda key: measures[key]))
    raise ExpressionError(
        code=ExpressionCode.COST,
        message=f"it could cost {bound.total / COST_BUDGET:.3g} times what is allowed with values of this size",
        expression=expression.source,
        hint=f"the largest value is {name}",
        name=name,
    )


def _rounded(size: int) -> int:
    """Round up by an eighth at most."""
    step = max(size.bit_length() - 4, 0)
    return -(-size >> step) << step


@lru_cache(maxsize=4_096)
def _cost(expression: Expression, measures: tuple[tuple[Key, int, int], ...]) -> Cost:
    known = {key: Measure(size=size, width=width) for key, size, width in measures}
    none = Measure(size=NODE_SIZE, width=0)

    def measure_of(root: str, variable: str | None) -> Measure:
        return known.get((root, variable)) or known.get((root, None)) or none

    total = sum(size for _, size, _ in measures)
    return expression_cost.cost(expression.tree.root, measure_of, total)


def _is_small(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _SMALL_INPUT
    return value is None or isinstance(value, (bool, int, float))


def _result(expression: Expression, value: object, depth: int) -> JsonValue:
    """Make what the library gives a JSON value."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    code, message = ExpressionCode.TYPE, ""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        code, message = ExpressionCode.OVERFLOW, f"it gives {value}, which is not a JSON number"
    elif depth >= _MAX_RESULT_DEPTH:
        message = f"its result is nested deeper than {_MAX_RESULT_DEPTH} levels"
    elif isinstance(value, list):
        return [_result(expression, item, depth + 1) for item in value]
    elif isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: _result(expression, value[key], depth + 1) for key in sorted(value)}
        message = "it gives an object with a key that is not text"
    else:
        message = f"it gives {expression_errors.kind_of(value)}, which JSON does not have; string() gives its text"
    raise ExpressionError(code=code, message=message, expression=expression.source)


__all__ = [
    "COST_BUDGET",
    "MAX_SOURCE_CHARACTERS",
    "Expression",
    "ExpressionCode",
    "ExpressionError",
    "reads",
]
