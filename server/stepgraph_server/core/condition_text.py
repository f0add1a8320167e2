"""The short form of a condition, as ConditionCheck has it.

Rules: a text stands for exactly one condition of an edge, so both read the same; whether an expression compiles is not
asked here. The forms are tried in this order: an exact name, `name==text`, a variable, CEL.
"""

from __future__ import annotations

import re
from typing import Final

from stepgraph.v1.edge_condition_pb2 import EdgeCondition
from stepgraph_server.core.names import VARIABLE_PATTERN, is_variable

EXACT_NAMES: Final = ("has_tool_calls", "is_final_answer", "requests_delegation", "error_occurred")
TRUE: Final = "true"

# No space around the name or before the `==`: with one it is CEL, which has the same operator.
_EQUALS: Final = re.compile(rf"({VARIABLE_PATTERN})==(.*)", re.DOTALL)


def parse_condition(text: str) -> EdgeCondition:
    """Return the condition that a text stands for; spaces around the whole text are ignored."""
    text = text.strip()
    match text:
        case "has_tool_calls":
            return EdgeCondition(has_tool_calls=EdgeCondition.HasToolCalls())
        case "is_final_answer":
            return EdgeCondition(is_final_answer=EdgeCondition.IsFinalAnswer())
        case "requests_delegation":
            return EdgeCondition(requests_delegation=EdgeCondition.RequestsDelegation())
        case "error_occurred":
            return EdgeCondition(error_occurred=EdgeCondition.ErrorOccurred())
        case _:
            pass
    equals = _EQUALS.fullmatch(text)
    if equals is not None:
        return _equals(equals.group(1), equals.group(2))
    if is_variable(text):
        return _equals(text, TRUE)
    return EdgeCondition(expression=EdgeCondition.Expression(cel=text))


def _equals(variable: str, value: str) -> EdgeCondition:
    return EdgeCondition(state_equals=EdgeCondition.StateEquals(variable=variable, value=value))
