"""What each action demands of its fields."""

from __future__ import annotations

import pytest

from stepgraph.v1 import graph_pb2
from tests.support.graphs import graph, problems, supported, warnings, with_action

VALID: list[tuple[str, dict[str, object]]] = [
    (
        "llm_infer",
        {
            "model": "m",
            "temperature": 2,
            "max_tokens": 1,
            "prompt_template": "Hello {{name}}",
            "output_schema": '{"type": "object"}',
            "provider_options": "{}",
            "include_tool_definitions": True,
            "tool_choice": {"named": {"name": "search"}},
            "tool_filter_override": {"allow": ["a*"]},
        },
    ),
    ("tool_call", {"tool_name": "{{tool}}"}),
    ("tool_call", {"tool_name": "search", "args_template": '{"q": "{{q}}"}'}),
    ("delegate", {}),
    ("delegate", {"agent_kind": "researcher", "task_template": "{{task}}"}),
    ("human_approval", {"description": "Well?"}),
    ("condition_check", {"condition": "ready"}),
    ("run_requested_tools", {"filter": {"allow": ["*"]}}),
    ("assign", {"set": {"x": "1 + 2"}, "unset": ["y"], "message_template": "{{x}}"}),
    ("step", {"program": "p", "input_template": "[1]", "variables": ["x", "_approval"]}),
    ("map", {"items": "vars.list", "body": {"program": "p"}}),
    (
        "subgraph",
        {
            "graph": {"reference": "other@3"},
            "input": {"x": "{{y}}"},
            "output": {"z": "_approval"},
            "time_limit": "1s",
        },
    ),
    ("sleep", {"duration": "0s"}),
    ("wait_signal", {"name": "paid", "correlation": "{{id}}", "timeout": "1s"}),
]


@pytest.mark.parametrize(("kind", "fields"), VALID)
def test_a_right_action_is_taken(kind: str, fields: dict[str, object]) -> None:
    definition = with_action(kind, **fields)
    assert supported(problems(definition)) == set()
    assert warnings(definition) == set()


def test_every_action_of_the_schema_is_tested_here() -> None:
    kinds = {field.name for field in graph_pb2.NodeAction.DESCRIPTOR.oneofs_by_name["kind"].fields}
    assert {kind for kind, _ in VALID} | {"switch_paradigm"} == kinds


@pytest.mark.parametrize(
    ("kind", "fields", "code", "field"),
    [
        ("llm_infer", {}, "NO_MODEL", "model"),
        ("llm_infer", {"model": "{{m"}, "TEMPLATE_INVALID", "model"),
        ("llm_infer", {"model": "m" * 129}, "TOO_LARGE", "model"),
        ("llm_infer", {"model": "m", "temperature": 2.1}, "OUT_OF_RANGE", "temperature"),
        ("llm_infer", {"model": "m", "temperature": -1}, "OUT_OF_RANGE", "temperature"),
        ("llm_infer", {"model": "m", "max_tokens": 0}, "OUT_OF_RANGE", "max_tokens"),
        (
            "llm_infer",
            {"model": "m", "prompt_template": "{{"},
            "TEMPLATE_INVALID",
            "prompt_template",
        ),
        (
            "llm_infer",
            {"model": "m", "system_prompt_override": "{{}}"},
            "TEMPLATE_INVALID",
            "system_prompt_override",
        ),
        ("llm_infer", {"model": "m", "output_schema": "{"}, "SCHEMA_INVALID", "output_schema"),
        ("llm_infer", {"model": "m", "provider_options": "[]"}, "JSON_INVALID", "provider_options"),
        (
            "llm_infer",
            {
                "model": "m",
                "include_tool_definitions": True,
                "tool_filter_override": {"deny": ["a b"]},
            },
            "NAME_INVALID",
            "tool_filter_override.deny[0]",
        ),
        (
            "llm_infer",
            {"model": "m", "include_tool_definitions": True, "tool_choice": {"named": {}}},
            "REQUIRED",
            "tool_choice.named.name",
        ),
        ("tool_call", {}, "REQUIRED", "tool_name"),
        ("tool_call", {"tool_name": "{{x"}, "TEMPLATE_INVALID", "tool_name"),
        ("tool_call", {"tool_name": "a b"}, "NAME_INVALID", "tool_name"),
        ("tool_call", {"tool_name": "delegate"}, "NAME_RESERVED", "tool_name"),
        ("tool_call", {"tool_name": "a", "args_template": ""}, "TEMPLATE_INVALID", "args_template"),
        ("delegate", {"agent_kind": "a b"}, "NAME_INVALID", "agent_kind"),
        ("delegate", {"task_template": "{{"}, "TEMPLATE_INVALID", "task_template"),
        ("switch_paradigm", {}, "UNKNOWN_PARADIGM", "paradigm"),
        ("switch_paradigm", {"paradigm": "x"}, "UNKNOWN_PARADIGM", "paradigm"),
        ("run_requested_tools", {"filter": {"allow": ["-"]}}, "NAME_INVALID", "filter.allow[0]"),
        ("assign", {"set": {"_choice": "1"}}, "NAME_RESERVED", 'set["_choice"]'),
        ("assign", {"set": {"x": "1 +"}}, "EXPRESSION_INVALID", 'set["x"]'),
        ("assign", {"set": {"x": "1"}, "unset": ["x"]}, "WRITTEN_TWICE", "unset[0]"),
        ("assign", {"unset": ["_approval"]}, "NAME_RESERVED", "unset[0]"),
        ("assign", {"message_template": "{{"}, "TEMPLATE_INVALID", "message_template"),
        ("step", {}, "REQUIRED", "program"),
        ("step", {"program": "p", "input_template": "{"}, "TEMPLATE_INVALID", "input_template"),
        ("step", {"program": "p", "variables": ["a b"]}, "NAME_INVALID", "variables[0]"),
        ("step", {"program": "p", "variables": ["a"] * 65}, "TOO_MANY", "variables"),
        ("map", {"items": "vars.x"}, "REQUIRED", "body"),
        ("map", {"items": "", "body": {"program": "p"}}, "EXPRESSION_INVALID", "items"),
        ("map", {"items": "[1]", "body": {}}, "UNKNOWN_VARIANT", "body"),
        ("map", {"items": "[1]", "body": {"program": ""}}, "REQUIRED", "body.program"),
        ("map", {"items": "[1]", "body": {"node_id": "x"}}, "UNKNOWN_NODE", "body.node_id"),
        ("map", {"items": "[1]", "body": {"node_id": "a"}}, "ACTION_NOT_ALLOWED", "body.node_id"),
        ("subgraph", {}, "REQUIRED", "graph"),
        ("subgraph", {"graph": {"reference": "a@0"}}, "NAME_INVALID", "graph.reference"),
        (
            "subgraph",
            {"graph": {"same_version": {}}, "time_limit": "0s"},
            "OUT_OF_RANGE",
            "time_limit",
        ),
        (
            "subgraph",
            {"graph": {"same_version": {}}, "input": {"x": "{{"}},
            "TEMPLATE_INVALID",
            'input["x"]',
        ),
        (
            "subgraph",
            {"graph": {"same_version": {}}, "output": {"x": ""}},
            "REQUIRED",
            'output["x"]',
        ),
        ("sleep", {}, "UNKNOWN_VARIANT", ""),
        ("sleep", {"duration": "-1s"}, "OUT_OF_RANGE", "duration"),
        ("wait_signal", {}, "REQUIRED", "name"),
        ("wait_signal", {"name": "a", "correlation": "{{"}, "TEMPLATE_INVALID", "correlation"),
        ("wait_signal", {"name": "a", "timeout": "0s"}, "OUT_OF_RANGE", "timeout"),
    ],
)
def test_a_wrong_action_is_told(
    kind: str, fields: dict[str, object], code: str, field: str
) -> None:
    path = f"nodes[0].action.{kind}.{field}".removesuffix(".")
    assert supported(problems(with_action(kind, **fields))) == {(code, path)}


def test_a_node_without_an_action_is_told_once() -> None:
    assert problems(graph({"a": {"action": {}}})) == {("UNKNOWN_VARIANT", "nodes[0].action")}
    assert problems(graph({"a": {"action": None}})) == {("UNKNOWN_VARIANT", "nodes[0].action")}


def test_a_model_may_come_from_the_graph_or_from_a_long_template() -> None:
    node = {"a": {"action": {"llm_infer": {}}}}
    assert problems(graph(node, default_model="m")) == set()
    assert problems(graph(node, default_model="{{m}}" + " " * 200)) == set()
    assert problems(graph(node, default_model="m" * 129)) == {("TOO_LARGE", "default_model")}


def test_a_paradigm_of_the_graph_may_be_switched_to() -> None:
    for fields in ({}, {"paradigm": "plan"}):
        node = {"a": {"action": {"switch_paradigm": fields}}}
        assert problems(graph(node, paradigms={"plan": {}})) == set()


def test_what_is_said_about_tools_is_ignored_without_tools() -> None:
    definition = with_action(
        "llm_infer", model="m", tool_choice={"required": {}}, tool_filter_override={}
    )
    path = "nodes[0].action.llm_infer"
    assert warnings(definition) == {
        ("FIELD_IGNORED", f"{path}.tool_choice"),
        ("FIELD_IGNORED", f"{path}.tool_filter_override"),
    }
    assert warnings(with_action("llm_infer", model="m", tool_choice={"auto": {}})) == set()


def test_a_body_may_be_a_node_that_no_edge_leads_to() -> None:
    nodes = {
        "a": {"action": {"map": {"items": "[1]", "body": {"node_id": "b"}}}},
        "b": {"action": {"tool_call": {"tool_name": "search"}}},
    }
    assert supported(problems(graph(nodes))) == set()


def test_a_graph_inside_a_node_is_checked_too() -> None:
    inner = {"name": "", "entry_point": "x", "nodes": [{"id": "x", "action": {"assign": {}}}]}
    definition = with_action("subgraph", graph={"definition": inner})
    assert supported(problems(definition)) == {
        ("REQUIRED", "nodes[0].action.subgraph.graph.definition.name")
    }
