"""What the schema itself demands of every message."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from stepgraph.v1 import graph_pb2
from stepgraph.v1.edge_condition_pb2 import EdgeCondition
from stepgraph.v1.llm_pb2 import ToolChoice
from stepgraph.v1.policy_pb2 import RetryPolicy, TaskLimits
from stepgraph_server.core.validation.report import Report
from stepgraph_server.core.validation.shape import check_shape
from tests.support.graphs import graph, problems

if TYPE_CHECKING:
    from google.protobuf.message import Message


def found(message: Message) -> set[tuple[str, str]]:
    report = Report()
    check_shape(report, "x", message)
    return {(problem.code, problem.path) for problem in report.findings().problems}


def test_a_oneof_must_be_set() -> None:
    definition = graph("a b", [("a > b", {"condition": {}})])
    assert ("UNKNOWN_VARIANT", "edges[0].condition") in problems(definition)
    assert found(graph_pb2.NodeAction()) == {("UNKNOWN_VARIANT", "x")}


def test_a_tool_choice_may_be_unset() -> None:
    assert found(ToolChoice()) == set()


def test_an_optional_field_is_no_variant() -> None:
    assert found(RetryPolicy()) == set()


def test_a_variant_of_a_newer_client_is_refused() -> None:
    report = Report()
    check_shape(report, "x", EdgeCondition.FromString(b"\xa2\x06\x00"))
    (problem,) = report.findings().problems
    assert (problem.code, problem.path) == ("UNKNOWN_VARIANT", "x")
    assert "field 100" in problem.message


def test_a_field_of_a_newer_client_is_refused() -> None:
    node = graph_pb2.GraphNode.FromString(b"\xa2\x06\x00")
    assert found(graph_pb2.StateGraph(nodes=[node])) == {("UNKNOWN_FIELD", "x.nodes[0]")}


def test_a_value_of_an_enum_of_a_newer_client_is_refused() -> None:
    definition = graph()
    definition.nodes[0].join = 99  # type: ignore[assignment]
    definition.reducers["x"] = 99  # type: ignore[assignment]
    assert problems(definition) >= {
        ("UNKNOWN_VARIANT", "nodes[0].join"),
        ("UNKNOWN_VARIANT", 'reducers["x"]'),
    }


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_must_be_one(number: float) -> None:
    assert ("OUT_OF_RANGE", "x.factor") in found(RetryPolicy(factor=number))


@pytest.mark.parametrize(
    ("seconds", "nanos"), [(-1, 0), (0, -1), (0, 999), (0, 10**9), (10**12, 0)]
)
def test_a_duration_must_be_one(seconds: int, nanos: int) -> None:
    limits = TaskLimits()
    limits.run.seconds, limits.run.nanos = seconds, nanos
    assert found(limits) == {("OUT_OF_RANGE", "x.run")}


@pytest.mark.parametrize(("seconds", "nanos"), [(0, 0), (0, 1_000), (3, 1)])
def test_a_duration_is_zero_or_at_least_a_microsecond(seconds: int, nanos: int) -> None:
    limits = TaskLimits()
    limits.run.seconds, limits.run.nanos = seconds, nanos
    assert found(limits) == set()


@pytest.mark.parametrize(
    ("seconds", "nanos", "right"),
    [(0, 0, True), (-(10**12), 0, False), (10**12, 0, False), (0, -1, False)],
)
def test_a_timestamp_must_be_one(seconds: int, nanos: int, right: bool) -> None:
    sleep = graph_pb2.NodeAction.Sleep()
    sleep.until.seconds, sleep.until.nanos = seconds, nanos
    assert found(sleep) == (set() if right else {("OUT_OF_RANGE", "x.until")})


def test_maps_and_lists_are_looked_into() -> None:
    definition = graph_pb2.StateGraph()
    definition.paradigms["plan"].MergeFromString(b"\xa2\x06\x00")
    definition.metadata["a"] = "b"
    definition.terminal_nodes.append("a")
    definition.retry.factor = 2.0
    assert found(definition) == {("UNKNOWN_FIELD", 'x.paradigms["plan"]')}


def test_what_is_nested_too_deeply_is_refused_without_recursion() -> None:
    outer = graph_pb2.StateGraph(name="g", entry_point="a")
    inner = outer
    for _ in range(40):
        inner = inner.nodes.add(id="a").action.subgraph.graph.definition
    assert {code for code, _ in problems(outer)} == {"TOO_DEEP"}
