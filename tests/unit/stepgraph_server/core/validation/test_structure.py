"""The parts of a graph by themselves."""

from __future__ import annotations

import pytest

from stepgraph_server.core.validation import check
from tests.support.graphs import DEFAULTS, condition, graph, problems, supported, warnings


def test_a_right_graph_has_no_problem() -> None:
    definition = graph(
        {
            "think": {"output_variable": "x", "metadata": {"a": "b"}, "selector": {"gpu": "yes"}},
            "end": {},
        },
        [("think > end", {"id": "done", "max_traversals": 3})],
        terminal_nodes=["end"],
        paradigms={"plan": {"system_prompt": "Plan {{what}}.", "tool_filter": {"allow": ["*"]}}},
        reducers={"x": "REDUCER_APPEND"},
        metadata={"owner": "me"},
    )
    assert problems(definition) == set()
    assert warnings(definition) == set()


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"name": ""}, "REQUIRED", "name"),
        ({"name": "my graph"}, "NAME_INVALID", "name"),
        ({"entry_point": ""}, "REQUIRED", "entry_point"),
        ({"entry_point": "b"}, "UNKNOWN_NODE", "entry_point"),
        ({"terminal_nodes": ["b"]}, "UNKNOWN_NODE", "terminal_nodes[0]"),
        ({"metadata": {f"k{n}": "" for n in range(65)}}, "TOO_MANY", "metadata"),
        ({"paradigms": {"a b": {}}}, "NAME_INVALID", 'paradigms["a b"]'),
        (
            {"paradigms": {"a": {"system_prompt": "{{"}}},
            "TEMPLATE_INVALID",
            'paradigms["a"].system_prompt',
        ),
        (
            {"paradigms": {"a": {"tool_filter": {"allow": ["?"]}}}},
            "NAME_INVALID",
            'paradigms["a"].tool_filter.allow[0]',
        ),
        ({"reducers": {"x": "REDUCER_UNSPECIFIED"}}, "UNKNOWN_VARIANT", 'reducers["x"]'),
        ({"reducers": {"_approval": "REDUCER_SUM"}}, "NAME_RESERVED", 'reducers["_approval"]'),
        ({"default_model": "{{"}, "TEMPLATE_INVALID", "default_model"),
        ({"approval_filter": {"allow": ["?"]}}, "NAME_INVALID", "approval_filter.allow[0]"),
    ],
)
def test_a_wrong_field_is_told(fields: dict[str, object], code: str, path: str) -> None:
    assert supported(problems(graph(**fields))) == {(code, path)}


def test_a_graph_has_a_node_and_a_beginning() -> None:
    assert problems(graph("")) == {("REQUIRED", "nodes"), ("REQUIRED", "entry_point")}


def test_an_unknown_node_is_told_with_the_closest() -> None:
    definition = graph("think review", ["think > reviev", "think > review"])
    (problem,) = check(definition, DEFAULTS).findings.problems
    assert (problem.code, problem.path) == ("UNKNOWN_NODE", "edges[0].target")
    assert problem.hint == "Did you mean review?"


def test_a_terminal_node_that_is_listed_twice_is_warned_of() -> None:
    assert warnings(graph(terminal_nodes=["a", "a"])) == {("DUPLICATE_ENTRY", "terminal_nodes[1]")}


@pytest.mark.parametrize(
    ("node", "code", "path"),
    [
        ({"id": ""}, "REQUIRED", "id"),
        ({"id": "ä"}, "NAME_INVALID", "id"),
        ({"output_variable": "a b"}, "NAME_INVALID", "output_variable"),
        ({"output_variable": "_condition_result"}, "NAME_RESERVED", "output_variable"),
        ({"metadata": {"": ""}}, "REQUIRED", 'metadata[""]'),
        ({"selector": {f"k{n}": "" for n in range(65)}}, "TOO_MANY", "selector"),
        ({"answers": "t"}, "UNKNOWN_TOOL", "answers"),
    ],
)
def test_a_wrong_node_is_told(node: dict[str, object], code: str, path: str) -> None:
    entry = str(node.get("id", "a"))
    definition = graph({"a": node})
    if entry:
        definition.entry_point = entry
    assert (code, f"nodes[0].{path}") in problems(definition)


def test_two_nodes_or_edges_can_t_have_one_id() -> None:
    definition = graph("a b", [("a > b", {"id": "e"}), ("b > a", {"id": "e"})])
    definition.nodes.add(id="a").action.assign.SetInParent()
    assert problems(definition) == {
        ("DUPLICATE_ID", "nodes[2].id"),
        ("DUPLICATE_ID", "edges[1].id"),
    }


def test_an_edge_has_a_right_id_and_two_ends() -> None:
    assert problems(graph("a", [("a > a", {"id": "1"})])) == {("NAME_INVALID", "edges[0].id")}
    assert problems(graph("a", [(" > x", {})])) == {
        ("REQUIRED", "edges[0].source"),
        ("UNKNOWN_NODE", "edges[0].target"),
    }


def test_a_handoff_has_no_condition_and_leaves_a_step() -> None:
    nodes = {"a": {"action": {"step": {"program": "p"}}}, "b": {}}
    handoff = {"handoff": True}
    assert supported(problems(graph(nodes, [("a > b", handoff)]))) == set()
    wrong = graph(nodes, [("a > b", {**handoff, "condition": {"always": {}}}), ("b > a", handoff)])
    assert supported(problems(wrong)) == {
        ("HANDOFF_CONDITION", "edges[0].condition"),
        ("HANDOFF_SOURCE", "edges[1].handoff"),
    }


def test_a_handoff_from_nowhere_is_told_once() -> None:
    definition = graph("a", [("x > a", {"handoff": True})])
    assert supported(problems(definition)) == {("UNKNOWN_NODE", "edges[0].source")}
    unset = graph({"a": {"action": {}}}, [("a > a", {"handoff": True})])
    assert supported(problems(unset)) == {("UNKNOWN_VARIANT", "nodes[0].action")}


def test_a_tool_of_the_graph_is_checked() -> None:
    tools = [
        {"definition": {"name": "t", "input_schema": "{", "output_schema": "["}},
        {"definition": {"name": "t", "description": "x" * 17_000}},
        {"definition": {"name": "delegate"}, "graph": {"reference": "?"}},
        {},
    ]
    assert problems(graph(tools=tools)) == {
        *(("TOOL_UNANSWERED", f"tools[{number}]") for number in (0, 1)),
        ("SCHEMA_INVALID", "tools[0].definition.input_schema"),
        ("SCHEMA_INVALID", "tools[0].definition.output_schema"),
        ("DUPLICATE_ID", "tools[1].definition.name"),
        ("TOO_LARGE", "tools[1].definition.description"),
        ("NAME_RESERVED", "tools[2].definition.name"),
        ("NAME_INVALID", "tools[2].graph.reference"),
        ("REQUIRED", "tools[3].definition.name"),
    }


def test_a_condition_of_an_edge_is_checked_at_its_place() -> None:
    definition = graph("a b", ["a > b", condition("b > a", "expression", cel="?")])
    assert problems(definition) == {("EXPRESSION_INVALID", "edges[1].condition.expression.cel")}


def test_tries_and_limits_of_a_child_run_are_those_of_its_nodes() -> None:
    node = {"action": {"subgraph": {"graph": {"reference": "g"}}}}
    assert warnings(graph({"a": node})) == set()
    ignored = {**node, "retry": {"max_tries": 2}, "limits": {"run": "5s"}}
    assert warnings(graph({"a": ignored})) == {
        ("FIELD_IGNORED", "nodes[0].retry"),
        ("FIELD_IGNORED", "nodes[0].limits"),
    }
