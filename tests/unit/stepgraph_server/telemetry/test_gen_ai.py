"""What attempts are called, and what they cost, in the words of the conventions."""

from __future__ import annotations

import pytest

from stepgraph.v1.event_pb2 import TaskScheduled
from stepgraph.v1.llm_pb2 import LlmStopReason, Usage
from stepgraph.v1.task_pb2 import TaskResult
from stepgraph_server.telemetry import gen_ai


@pytest.mark.parametrize(
    ("requirement", "name", "operation"),
    [
        ({"llm": {"model": "m"}}, "chat m", "chat"),
        ({"tool": {"name": "search"}}, "execute_tool search", "execute_tool"),
        ({"agent": {"kind": "writer"}}, "invoke_agent writer", "invoke_agent"),
        ({"condition": {"name": "is_warm"}}, "condition is_warm", None),
        ({"step": {"program": "p"}}, "step p", None),
        ({"effect": {"kind": "mail"}}, "effect mail", None),
        ({}, "task", None),
    ],
)
def test_every_kind_of_work_has_a_name(requirement, name, operation):
    attributes = {}
    scheduled = TaskScheduled(requirement=requirement)
    assert gen_ai.describe_work(scheduled, "r1", attributes) == name
    assert attributes.get("gen_ai.operation.name") == operation
    assert ("gen_ai.provider.name" in attributes) == (operation is not None)


def test_a_tool_names_the_call_that_it_performs_and_a_model_the_run():
    attributes = {}
    scheduled = TaskScheduled(requirement={"tool": {"name": "search"}}, call_id="c1")
    gen_ai.describe_work(scheduled, "r1", attributes)
    assert attributes["gen_ai.tool.call.id"] == "c1"
    assert "gen_ai.conversation.id" not in attributes
    attributes = {}
    gen_ai.describe_work(TaskScheduled(requirement={"llm": {"model": "m"}}), "r1", attributes)
    assert attributes["gen_ai.conversation.id"] == "r1"


@pytest.mark.parametrize("reason", LlmStopReason.values())
def test_every_reason_to_stop_has_a_word(reason):
    attributes = {}
    result = TaskResult(llm={"stop_reason": reason, "model": "m-2"})
    assert gen_ai.describe_result(result, attributes) == ""
    assert attributes["gen_ai.response.model"] == "m-2"
    (word,) = attributes["gen_ai.response.finish_reasons"]
    assert word in {"stop", "tool_call", "length", "content_filter", "other"}


def test_a_reason_of_a_newer_schema_is_another_one():
    attributes = {}
    gen_ai.describe_result(TaskResult(llm={"stop_reason": 99}), attributes)
    assert attributes == {"gen_ai.response.finish_reasons": ("other",)}


def test_a_tool_that_reports_trouble_is_an_error_without_a_failure():
    assert gen_ai.describe_result(TaskResult(tool={"is_error": True}), {}) == "TOOL_REPORTS_ERROR"
    assert gen_ai.describe_result(TaskResult(tool={}), {}) == ""


def test_what_costs_nothing_says_nothing():
    attributes = {}
    gen_ai.describe_usage(Usage(), attributes)
    assert attributes == {}
    gen_ai.describe_usage(Usage(input_tokens=1, reasoning_tokens=2), attributes)
    assert attributes == {"gen_ai.usage.input_tokens": 1, "gen_ai.usage.reasoning.output_tokens": 2}


def test_models_and_agents_cost_something():
    usage = Usage(input_tokens=1)
    assert gen_ai.usage_of(TaskResult(llm={"usage": usage})) == usage
    assert gen_ai.usage_of(TaskResult(agent={"usage": usage})) == usage
    assert gen_ai.usage_of(TaskResult(tool={})) == Usage()
