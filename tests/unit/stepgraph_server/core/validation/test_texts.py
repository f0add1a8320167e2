"""Texts that mean something."""

from __future__ import annotations

import pytest

from stepgraph.v1.llm_pb2 import ToolFilter
from stepgraph_server.core.validation import texts
from stepgraph_server.core.validation.report import Report


@pytest.fixture
def report() -> Report:
    return Report()


def codes(report: Report) -> list[str]:
    return [problem.code for problem in report.findings().problems]


def paths(report: Report) -> list[str]:
    return [problem.path for problem in report.findings().problems]


def test_a_name_must_be_set_and_have_its_form(report: Report) -> None:
    assert texts.check_id(report, "x", "good", "a node")
    assert not texts.check_id(report, "x", "", "a node")
    assert not texts.check_id(report, "x", "not good", "a node")
    assert codes(report) == ["REQUIRED", "NAME_INVALID"]


def test_a_variable_must_be_set_and_have_its_form(report: Report) -> None:
    assert texts.check_variable(report, "x", "_approval")
    assert not texts.check_variable(report, "x", "")
    assert not texts.check_variable(report, "x", "a b")
    assert codes(report) == ["REQUIRED", "NAME_INVALID"]


def test_what_only_the_server_writes_can_t_be_written(report: Report) -> None:
    for name in ("_approval", "_choice.a", "_condition_results", "1"):
        texts.check_written_variable(report, "x", name)
    texts.check_written_variable(report, "x", "mine")
    assert codes(report) == ["NAME_RESERVED"] * 3 + ["NAME_INVALID"]


def test_a_variable_that_templates_can_t_see_is_warned_of(report: Report) -> None:
    for name in ("last_result", "item", "input"):
        texts.check_written_variable(report, name, name)
    found = report.findings()
    assert [(warning.code, warning.path) for warning in found.warnings] == [
        ("SHADOWED_NAME", "last_result"),
        ("SHADOWED_NAME", "item"),
    ]
    assert not found.problems


def test_codes_have_their_form_and_are_few(report: Report) -> None:
    texts.check_codes(report, "x", ["TOOL_ERROR", "tool"])
    texts.check_codes(report, "y", ["TOOL_ERROR"] * 65)
    assert paths(report) == ["x[1]", "y"]
    assert codes(report) == ["NAME_INVALID", "TOO_MANY"]


def test_a_size_is_counted_in_bytes(report: Report) -> None:
    assert texts.check_size(report, "x", "ä" * 4, 8)
    assert texts.check_size(report, "x", "ab", 8)
    assert not texts.check_size(report, "x", "ä" * 5, 8)
    assert codes(report) == ["TOO_LARGE"]


def test_labels_are_few_and_have_names(report: Report) -> None:
    texts.check_labels(report, "x", {"a": ""}, 1)
    texts.check_labels(report, "x", {"": "b", "a": "b"}, 1)
    assert codes(report) == ["TOO_MANY", "REQUIRED"]
    assert paths(report)[1] == 'x[""]'


def test_a_malformed_template_is_told_with_its_place(report: Report) -> None:
    assert texts.check_template(report, "x", "Hello {{name}}") is not None
    assert texts.check_template(report, "x", "Hello {{name") is None
    (problem,) = report.findings().problems
    assert problem.code == "TEMPLATE_INVALID"
    assert "character 7" in problem.message


def test_a_template_without_placeholders_is_the_name_itself(report: Report) -> None:
    for text in ("", "{{kind}}", "researcher"):
        texts.check_named_by_template(report, "x", text, "an agent")
    assert codes(report) == []
    texts.check_named_by_template(report, "x", "a b", "an agent")
    texts.check_named_by_template(report, "x", "{{a", "an agent")
    texts.check_named_by_template(report, "x", "{{{{a", "an agent")
    assert codes(report) == ["NAME_INVALID", "TEMPLATE_INVALID", "NAME_INVALID"]


def test_arguments_are_json_before_they_are_templates(report: Report) -> None:
    for text in ('{"a": "{{b}}"}', '"{{all}}"'):
        texts.check_args_template(report, "x", text, must_be_object=True)
    texts.check_args_template(report, "x", "[1]", must_be_object=False)
    assert codes(report) == []
    for text in ("{", '{"a": "{{b"}', "[1]", ""):
        texts.check_args_template(report, "x", text, must_be_object=True)
    assert codes(report) == ["TEMPLATE_INVALID"] * 4
    assert "$.a" in report.findings().problems[1].message


def test_a_json_object_is_json_and_an_object(report: Report) -> None:
    texts.check_json_object(report, "x", "")
    texts.check_json_object(report, "x", "{}")
    texts.check_json_object(report, "x", "{'a': 1}")
    texts.check_json_object(report, "x", "[]")
    assert codes(report) == ["JSON_INVALID", "JSON_INVALID"]


def test_a_schema_must_be_one_that_can_be_used(report: Report) -> None:
    assert texts.check_schema(report, "x", '{"type": "object"}')
    assert not texts.check_schema(report, "x", "")
    assert codes(report) == []
    for text in ("{", "[]", '{"type": "objekt"}', '{"$ref": "https://example.com/x"}'):
        assert not texts.check_schema(report, "x", text)
    assert codes(report) == ["SCHEMA_INVALID"] * 4


def test_a_schema_that_is_too_large_is_not_compiled(report: Report) -> None:
    assert not texts.check_schema(report, "x", "[" * (texts.MAX_SCHEMA_BYTES + 1))
    assert codes(report) == ["TOO_LARGE"]


def test_a_filter_has_names_and_prefixes(report: Report) -> None:
    texts.check_filter(report, "x", ToolFilter(allow=["*", "a", "b.*"], deny=["c*"]))
    assert codes(report) == []
    texts.check_filter(report, "x", ToolFilter(allow=["a*b", ""], deny=["**"]))
    assert paths(report) == ["x.allow[0]", "x.allow[1]", "x.deny[0]"]


def test_a_tool_of_the_server_s_is_nobody_else_s(report: Report) -> None:
    for name in ("search", "delegate", ""):
        texts.check_tool_name(report, "x", name)
    assert codes(report) == ["NAME_RESERVED", "REQUIRED"]
