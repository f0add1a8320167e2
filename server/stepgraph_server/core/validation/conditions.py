"""Conditions of edges, the condition of a ConditionCheck, and expressions.

Rules: an expression is compiled here, so a broken one never reaches a run. That a condition gives true or false is asked of
the compiler too: what it can't tell is left to the run.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from stepgraph_server.core.condition_text import EXACT_NAMES, parse_condition
from stepgraph_server.core.expression_errors import ExpressionCode, ExpressionError
from stepgraph_server.core.expression_names import ROOTS
from stepgraph_server.core.expressions import MAX_SOURCE_CHARACTERS, Expression
from stepgraph_server.core.validation.codes import ProblemCode, WarningCode
from stepgraph_server.core.validation.report import shown
from stepgraph_server.core.validation.texts import (
    check_codes,
    check_id,
    check_size,
    check_variable,
)

if TYPE_CHECKING:
    from stepgraph.v1.edge_condition_pb2 import EdgeCondition
    from stepgraph_server.core.validation.outline import Outline
    from stepgraph_server.core.validation.report import Report

MAX_CUSTOM_DESCRIPTION_BYTES: Final = 8 * 1024


class Kind(Enum):
    """What an expression is for."""

    EDGE = auto()
    """The condition of an edge."""
    CHECK = auto()
    """The condition of a ConditionCheck."""
    VALUE = auto()
    """A value, of any type."""


_LOOKS_LIKE_CEL: Final = re.compile(r"""^\s*["']|&&|\|\||[)\]]\s*$""")
_TEXT: Final = re.compile(r"\"[^\"\\\n]*\"|'[^'\\\n]*'")
_NOT_PLAIN: Final = re.compile(r"[\"'?\[{]|//")
_CALL: Final = re.compile(r"(\w+)\s*\(")
_COMPARES: Final = re.compile(r"[=!<>]|&&|\|\|")
_LITERALS: Final = frozenset({"true", "false", "null"})


def check_condition(report: Report, path: str, condition: EdgeCondition, outline: Outline) -> None:
    """Check the condition of an edge. An unset variant is reported with the shape."""
    match condition.WhichOneof("kind"):
        case "error_occurred":
            check_codes(report, f"{path}.error_occurred.codes", condition.error_occurred.codes)
        case "state_equals":
            check_variable(report, f"{path}.state_equals.variable", condition.state_equals.variable)
        case "custom":
            check_id(report, f"{path}.custom.name", condition.custom.name, "a condition")
            check_size(
                report,
                f"{path}.custom.description",
                condition.custom.description,
                MAX_CUSTOM_DESCRIPTION_BYTES,
            )
        case "paradigm_equals":
            check_paradigm(
                report,
                f"{path}.paradigm_equals.paradigm",
                condition.paradigm_equals.paradigm,
                outline,
            )
        case "iteration_exceeds":
            _check_count(report, path, condition.iteration_exceeds.count, outline)
        case "expression":
            check_expression(
                report,
                f"{path}.expression.cel",
                condition.expression.cel,
                outline,
                kind=Kind.EDGE,
            )
        case _:
            # The others have no fields.
            pass


def _check_count(report: Report, path: str, count: int, outline: Outline) -> None:
    cap = outline.definition.max_iterations or outline.defaults.max_iterations
    if count >= cap:
        report.warning(
            WarningCode.CONDITION_NEVER_HOLDS,
            f"{path}.iteration_exceeds.count",
            f"a run has at most {cap} supersteps, so there are never more than {count}",
            "Use a smaller count, or raise max_iterations.",
        )


def check_paradigm(report: Report, path: str, paradigm: str, outline: Outline) -> None:
    """Check that a paradigm is one of the graph's."""
    known = outline.definition.paradigms
    if paradigm not in known:
        message = f"the graph has no paradigm {shown(paradigm)}"
        hint = report.closest(paradigm, list(known)) or "List it under paradigms."
        report.problem(ProblemCode.UNKNOWN_PARADIGM, path, message, hint)


def check_expression(
    report: Report, path: str, source: str, outline: Outline, *, kind: Kind
) -> None:
    """Compile an expression, which must be set."""
    try:
        expression = outline.expressions[source] = Expression.compile(source)
    except ExpressionError as error:
        place = "" if error.position is None else f", at character {error.position + 1}"
        report.problem(
            ProblemCode.EXPRESSION_INVALID, path, f"{error.message}{place}", _hint_of(error)
        )
        return
    if kind is not Kind.EDGE and "edge" in expression.roots().names:
        report.problem(
            ProblemCode.EXPRESSION_INVALID,
            path,
            "only the condition of an edge sees `edge`",
            "Count in a variable.",
        )
    if kind is not Kind.VALUE and not _may_give_bool(source):
        report.problem(
            ProblemCode.EXPRESSION_INVALID,
            path,
            "it does not give true or false",
            "Compare it with something.",
        )


def _hint_of(error: ExpressionError) -> str:
    if error.hint or not error.known:
        return error.hint
    return f"There is {', '.join(error.known)}."


def _may_give_bool(source: str) -> bool:
    # Only the compiler knows the type of an expression, and it refuses the negation of what can't be a bool. The line
    # break ends a comment. A source so long that the negation would not fit is left to the run.
    negation = f"!(\n{source}\n)"
    if len(negation) > MAX_SOURCE_CHARACTERS or _surely_gives_bool(source):
        return True
    try:
        Expression.compile(negation)
    except ExpressionError as error:
        return error.code != ExpressionCode.TYPE
    return True


def _surely_gives_bool(source: str) -> bool:
    """Whether one look is enough: without choices, lists and calls, what compares something gives true or false.

    Most conditions are such, and compiling each of them a second time would double the time that a large graph takes.
    """
    rest = _TEXT.sub("0", source)
    if _NOT_PLAIN.search(rest) or any(name != "has" for name in _CALL.findall(rest)):
        return False
    return _COMPARES.search(rest) is not None


def check_condition_text(report: Report, path: str, text: str, outline: Outline) -> None:
    """Check the condition of a ConditionCheck, which must be set."""
    if not text.strip():
        report.problem(
            ProblemCode.REQUIRED,
            path,
            "a condition must be given",
            f"Write one of {', '.join(EXACT_NAMES)}, name==text, a variable, or CEL.",
        )
        return
    condition = parse_condition(text)
    if condition.HasField("expression"):
        check_expression(report, path, condition.expression.cel, outline, kind=Kind.CHECK)
        return
    if not condition.HasField("state_equals"):
        return
    variable, value = condition.state_equals.variable, condition.state_equals.value
    if _reads_as_cel(variable) or _LOOKS_LIKE_CEL.search(value):
        report.warning(
            WarningCode.AMBIGUOUS_CONDITION,
            path,
            f"it compares the variable {shown(variable)} with the text {shown(value)}",
            "For CEL put spaces around ==, or write the expression in parentheses.",
        )


def _reads_as_cel(variable: str) -> bool:
    root, dot, _ = variable.partition(".")
    return variable in _LITERALS or (root in ROOTS and (bool(dot) or root != "vars"))
