"""Graphs, compiled."""

from __future__ import annotations

import time

import pytest
from google.protobuf.duration_pb2 import Duration

from stepgraph.v1 import graph_pb2
from stepgraph_server.core import canonical
from stepgraph_server.core.errors import GraphInvalid
from stepgraph_server.core.graph import (
    ActionKind,
    CompiledGraph,
    ConditionKind,
    GraphDefaults,
    _build,
    check_graph,
    compile_graph,
)
from stepgraph_server.core.instants import SECOND
from stepgraph_server.core.policies import Limits, RetryPolicy
from tests.support.graphs import DEFAULTS, chain, condition, graph


def compiled(*args: object, **fields: object) -> CompiledGraph:
    return compile_graph(graph(*args, **fields), DEFAULTS)


def test_nodes_stand_in_bytewise_order() -> None:
    built = compiled("b Z a _", ["b > Z", "b > a", "b > _"])
    assert [node.id for node in built.ordered] == ["Z", "_", "a", "b"]
    assert [(node.index, node.bit) for node in built.ordered] == [(0, 1), (1, 2), (2, 4), (3, 8)]
    assert list(built.nodes) == ["Z", "_", "a", "b"]
    assert built.entry is built.nodes["b"]
    assert [node.id for node in built.members(0b1010)] == ["_", "b"]


def test_a_node_has_its_edges_in_the_order_of_the_definition() -> None:
    built = compiled(
        "a b c d",
        [
            condition("a > c", "error_occurred", codes=["XX"]),
            condition("a > b", "always"),
            "b > c",
            ("a > c", {"id": "last", "max_traversals": 2}),
            condition("a > d", "custom", name="ready"),
        ],
    )
    a = built.nodes["a"]
    assert [edge.id for edge in a.edges] == ["a.c", "a.b", "last", "a.d"]
    assert [edge.id for edge in a.custom_edges] == ["a.d"]
    assert [edge.condition_kind for edge in a.edges] == ["error_occurred", "", "", "custom"]
    assert [edge.condition is None for edge in a.edges] == [False, True, True, False]
    assert [edge.index for edge in built.edges] == [0, 1, 2, 3, 4]
    assert built.edges_by_id["last"].max_traversals == 2
    assert not a.handoffs


def test_reach_counts_one_edge_or_more() -> None:
    built = compiled("a b c", ["a > b", "b > a", "b > c"])
    reach = {node.id: "".join(x.id for x in built.members(node.reach)) for node in built.ordered}
    assert reach == {"a": "abc", "b": "abc", "c": ""}


def test_nothing_is_reached_through_a_terminal_node() -> None:
    built = compiled("a b c", ["a > b", "b > c", "a > c"], terminal_nodes=["b"])
    assert built.nodes["b"].reach == 0
    assert built.nodes["b"].terminal
    assert not built.nodes["a"].terminal


def test_handoffs_are_apart_and_count_for_reach() -> None:
    definition = graph(
        {"a": {"action": {"step": {"program": "p"}}}, "b": {}},
        [
            ("a > b", {"handoff": True, "id": "first"}),
            ("a > b", {"handoff": True, "id": "second"}),
        ],
    )
    built = _build(definition, DEFAULTS, {})
    a = built.nodes["a"]
    assert a.edges == ()
    assert a.handoffs["b"].id == "first"
    assert a.handoffs["b"].handoff
    assert a.reach == built.nodes["b"].bit


@pytest.mark.parametrize(
    ("kind", "fields", "reads"),
    [
        ("state_equals", {"variable": "_approval", "value": "abort"}, True),
        ("state_equals", {"variable": "_choice.a", "value": "x"}, True),
        ("state_equals", {"variable": "x", "value": "_approval"}, False),
        ("expression", {"cel": 'vars._approval == "abort"'}, True),
        ("expression", {"cel": 'has(vars.x) && vars["_approval.a"] != "proceed"'}, True),
        ("expression", {"cel": "size(vars) > 3"}, False),
        ("expression", {"cel": '"_approval" == last_result'}, False),
        ("custom", {"name": "_approval"}, False),
        ("otherwise", {}, False),
        ("has_tool_calls", {}, False),
        ("always", {}, False),
    ],
)
def test_only_naming_an_answer_reads_it(kind: str, fields: dict[str, object], reads: bool) -> None:
    built = compiled({"a": {"interrupt": True}, "b": {}}, [condition("a > b", kind, **fields)])
    assert built.edges[0].reads_approval is reads
    assert (built.edges[0].expression is not None) == (kind == "expression")


def test_a_condition_check_has_its_condition_compiled() -> None:
    built = compiled(
        {
            "a": {"action": {"condition_check": {"condition": "x==1"}}},
            "b": {"action": {"condition_check": {"condition": "iterations > 2"}}},
        },
        ["a > b"],
    )
    text, cel = built.nodes["a"].check, built.nodes["b"].check
    assert text is not None
    assert (text.kind, text.expression) == ("state_equals", None)
    assert cel is not None
    assert cel.expression is not None
    assert cel.expression.source == "iterations > 2"
    assert built.nodes["a"].works is False


def test_an_assign_has_its_expressions_compiled_in_order() -> None:
    built = compiled({"a": {"action": {"assign": {"set": {"y": "1", "x": "iterations"}}}}})
    assert list(built.nodes["a"].expressions) == ["x", "y"]
    assert built.nodes["a"].check is None


def test_policies_come_from_the_nearest_level() -> None:
    defaults = GraphDefaults(retry=RetryPolicy(max_tries=9), limits=Limits(), max_iterations=7)
    definition = graph(
        {"a": {"retry": {"max_tries": 2}, "limits": {"run": "3s"}}, "b": {}},
        ["a > b"],
        retry={"jitter": 0},
        limits={"queue": "1s"},
    )
    built = compile_graph(definition, defaults)
    assert built.nodes["a"].retry == RetryPolicy(max_tries=2, jitter=0)
    assert built.nodes["b"].retry == RetryPolicy(max_tries=9, jitter=0)
    assert built.nodes["a"].limits == Limits(queue=SECOND, run=3 * SECOND)
    assert built.max_iterations == 7
    assert built.time_limit is None


def test_the_graph_s_own_fields_are_at_hand() -> None:
    definition = graph(
        {
            "a": {
                "action": {"llm_infer": {}},
                "selector": {"z": "1", "a": "2"},
                "append": "APPEND_MODE_NONE",
                "join": "NODE_JOIN_ALL",
                "interrupt": True,
            }
        },
        max_iterations=3,
        default_model="m",
        reducers={"x": "REDUCER_SUM"},
        paradigms={"plan": {"system_prompt": "Plan."}},
    )
    definition.time_limit.CopyFrom(Duration(seconds=1))
    built = compile_graph(definition, DEFAULTS)
    node = built.nodes["a"]
    assert (node.selector, node.append_none) == ((("a", "2"), ("z", "1")), True)
    assert (node.join_all, node.interrupt, node.works) == (True, True, True)
    assert (node.action_kind, node.action) == ("llm_infer", graph_pb2.NodeAction.LlmInfer())
    assert (built.name, built.max_iterations, built.time_limit) == ("g", 3, SECOND)
    assert (built.default_model, built.reducers) == ("m", {"x": graph_pb2.REDUCER_SUM})
    assert built.paradigms["plan"].system_prompt == "Plan."
    assert built.digest == canonical.digest(definition)
    assert (built.offers_delegate, built.switch_paradigms) == (False, ())


def test_decisions_that_no_node_carries_out_are_not_offered() -> None:
    paradigms = {"plan": {}, "act": {}}
    fixed = compiled(
        {
            "a": {"action": {"delegate": {"agent_kind": "k", "task_template": "t"}}},
            "b": {"action": {"switch_paradigm": {"paradigm": "plan"}}},
        },
        ["a > b"],
        paradigms=paradigms,
    )
    assert (fixed.offers_delegate, fixed.switch_paradigms) == (False, ())
    carried = compiled(
        {"a": {"action": {"delegate": {}}}, "b": {"action": {"switch_paradigm": {}}}},
        ["a > b"],
        paradigms=paradigms,
    )
    assert (carried.offers_delegate, carried.switch_paradigms) == (True, ("act", "plan"))


def test_every_variant_of_the_schema_has_its_name_here() -> None:
    actions = graph_pb2.NodeAction.DESCRIPTOR.oneofs_by_name["kind"].fields
    conditions = (
        graph_pb2.GraphEdge.DESCRIPTOR.fields_by_name["condition"]
        .message_type.oneofs_by_name["kind"]
        .fields
    )
    assert {field.name for field in actions} == set(ActionKind.__args__)
    named = {field.name for field in conditions}
    assert named == (set(ConditionKind.__args__) - {""}) | {"always"}


def test_a_graph_with_problems_is_refused_with_all_of_them() -> None:
    definition = graph("a b", ["a > c"], entry_point="x")
    with pytest.raises(GraphInvalid) as caught:
        compile_graph(definition, DEFAULTS)
    assert {problem.path for problem in caught.value.problems} == {"entry_point", "edges[0].target"}
    assert caught.value.problems == check_graph(definition, DEFAULTS).problems


def test_warnings_don_t_refuse_a_graph() -> None:
    definition = graph("a b", ["a > b", "a > b"])
    assert check_graph(definition, DEFAULTS).warnings
    compile_graph(definition, DEFAULTS)


def test_a_graph_of_2000_nodes_compiles_within_seconds() -> None:
    definition = chain(2_000)
    # The process's own time, because others may have the machine. It takes half a second, and twice that while coverage is
    # measured; what grows with the square of the nodes would take minutes.
    started = time.process_time()
    built = compile_graph(definition, DEFAULTS)
    assert time.process_time() - started < 3.0
    assert built.nodes["n0"].reach.bit_count() == 2_000
    assert check_graph(definition, DEFAULTS).warnings == ()
