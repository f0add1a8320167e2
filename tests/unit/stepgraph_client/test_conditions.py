from __future__ import annotations

import pytest

from stepgraph.v1.edge_condition_pb2 import EdgeCondition
from stepgraph_client import conditions

EVERY = {
    "has_tool_calls": conditions.has_tool_calls(),
    "is_final_answer": conditions.is_final_answer(),
    "requests_delegation": conditions.requests_delegation(),
    "error_occurred": conditions.error_occurred("A", "B"),
    "state_equals": conditions.state_equals("x", "3"),
    "always": conditions.always(),
    "custom": conditions.custom("enough", "is it enough?"),
    "paradigm_equals": conditions.paradigm_equals("careful"),
    "iteration_exceeds": conditions.iteration_exceeds(5),
    "expression": conditions.expression("size(vars) > 0"),
    "otherwise": conditions.otherwise(),
}


@pytest.mark.parametrize(("kind", "condition"), EVERY.items())
def test_each_function_makes_the_variant_of_its_name(kind, condition) -> None:
    assert condition.WhichOneof("kind") == kind


def test_every_variant_of_the_schema_has_its_function() -> None:
    assert set(EVERY) == set(EdgeCondition.DESCRIPTOR.fields_by_name)


def test_what_was_said_arrives() -> None:
    assert list(EVERY["error_occurred"].error_occurred.codes) == ["A", "B"]
    assert EVERY["state_equals"].state_equals.value == "3"
    assert EVERY["iteration_exceeds"].iteration_exceeds.count == 5
    assert EVERY["custom"].custom.description == "is it enough?"
