"""Which JSON Schemas tools may have."""

from __future__ import annotations

import json

import pytest

from stepgraph.v1 import llm_pb2
from stepgraph_server.executors import tool_schemas
from stepgraph_server.executors.tool_schemas import look_through, schema_problem


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(tool_schemas, "_found", {})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {}}},
        {"type": "object", "properties": {"$ref": {"type": "string", "pattern": "^[a-z]+$"}}},
    ],
)
def test_a_schema_that_can_be_used_has_no_problem(schema):
    assert schema_problem(json.dumps(schema), of_arguments=True) == ""


def test_no_schema_is_right():
    assert schema_problem("", of_arguments=True) == ""


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        '{"type": 3}',
        '{"type": "object", "properties": {"a": {"type": "strin"}}}',
        '{"type": "object", "properties": {"a": {"$ref": "https://example.com/x.json"}}}',
        '{"type": "object", "properties": {"a": {"pattern": "("}}}',
        '{"type": "object", "type": "object"}',
        '{"type": "object", "description": "' + "x" * 65_536 + '"}',
    ],
)
def test_a_schema_that_can_not_be_used_has_a_problem(text):
    problem = schema_problem(text, of_arguments=True)
    assert problem
    assert len(problem) < 1_000


def test_arguments_are_an_object_and_outputs_may_be_anything():
    text = json.dumps({"type": "string"})
    assert "object" in schema_problem(text, of_arguments=True)
    assert schema_problem(text, of_arguments=False) == ""


def test_a_schema_is_looked_through_once(monkeypatch):
    calls = []
    find = tool_schemas._find
    monkeypatch.setattr(
        tool_schemas, "_find", lambda text, **more: calls.append(text) or find(text, **more)
    )
    for _ in range(3):
        assert schema_problem("{", of_arguments=True)
        assert not schema_problem('{"type": "object"}', of_arguments=True)
    assert len(calls) == 2


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(tool_schemas, "MAX_REMEMBERED", 2)
    for index in range(5):
        schema_problem(json.dumps({"type": "object", "title": str(index)}), of_arguments=True)
    assert len(tool_schemas._found) <= 2


def test_many_definitions_are_looked_through_one_at_a_step():
    new = llm_pb2.ToolDefinition(name="a", input_schema='{"type":"object"}', output_schema="{}")
    same = llm_pb2.ToolDefinition(name="b", input_schema='{"type":"object"}')
    none = llm_pb2.ToolDefinition(name="c")
    assert len(list(look_through([new, same, none]))) == 2
    assert list(look_through([new])) == []
