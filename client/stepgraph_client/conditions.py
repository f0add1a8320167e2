"""Conditions of edges, as functions: `graph.edge("think", "act", when=has_tool_calls())`.

Rules: one function per variant of `EdgeCondition`, by its name in the schema. They only build; the server checks.
"""

from __future__ import annotations

from stepgraph.v1.edge_condition_pb2 import EdgeCondition
from stepgraph_client.keywords import checked


def has_tool_calls() -> EdgeCondition:
    """The model wants tools to be run."""
    return EdgeCondition(has_tool_calls=EdgeCondition.HasToolCalls())


def is_final_answer() -> EdgeCondition:
    """The model answered."""
    return EdgeCondition(is_final_answer=EdgeCondition.IsFinalAnswer())


def requests_delegation() -> EdgeCondition:
    """The model wants an agent to do something."""
    return EdgeCondition(requests_delegation=EdgeCondition.RequestsDelegation())


@checked
def error_occurred(*codes: str) -> EdgeCondition:
    """There was an error with one of these codes; with any, if none is given."""
    return EdgeCondition(error_occurred=EdgeCondition.ErrorOccurred(codes=codes))


@checked
def state_equals(variable: str, value: str) -> EdgeCondition:
    """A variable equals a text. Numbers, true, false and null are compared by their text."""
    return EdgeCondition(state_equals=EdgeCondition.StateEquals(variable=variable, value=value))


def always() -> EdgeCondition:
    """Always; the same as no condition."""
    return EdgeCondition(always=EdgeCondition.Always())


@checked
def custom(name: str, description: str = "") -> EdgeCondition:
    """An executor that offers a condition of this name decides."""
    return EdgeCondition(custom=EdgeCondition.Custom(name=name, description=description))


@checked
def paradigm_equals(paradigm: str) -> EdgeCondition:
    """This paradigm is in force."""
    return EdgeCondition(paradigm_equals=EdgeCondition.ParadigmEquals(paradigm=paradigm))


@checked
def iteration_exceeds(count: int) -> EdgeCondition:
    """The run has started more than this many supersteps."""
    return EdgeCondition(iteration_exceeds=EdgeCondition.IterationExceeds(count=count))


@checked
def expression(cel: str) -> EdgeCondition:
    """A CEL expression is true."""
    return EdgeCondition(expression=EdgeCondition.Expression(cel=cel))


def otherwise() -> EdgeCondition:
    """No other edge of the node holds."""
    return EdgeCondition(otherwise=EdgeCondition.Otherwise())
