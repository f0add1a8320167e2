"""What functions return, as results."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum

import pytest
from pydantic import BaseModel

from stepgraph.v1 import conversation_pb2, llm_pb2, task_pb2, transition_pb2
from stepgraph.v1.value_pb2 import Blob, Value
from stepgraph_client import task_results
from stepgraph_client.task_errors import Failed, ToolError

TEXT = task_results.text_block("hello")


class Point(BaseModel):
    x: int
    when: dt.date | None = None


@dataclasses.dataclass
class Pair:
    left: int
    right: Point


class Colour(enum.Enum):
    RED = "red"


def refused(function, returned):
    with pytest.raises(Failed) as caught:
        function(returned)
    assert caught.value.code == "RESULT_INVALID"
    assert caught.value.retryable is False
    return caught.value.message


class TestValues:
    @pytest.mark.parametrize(
        ("returned", "expected"),
        [
            ("text", Value(text="text")),
            ("", Value(text="")),
            (b"\x00", Value(blob=Blob(media_type="application/octet-stream", data=b"\x00"))),
            (Value(json="1.0"), Value(json="1.0")),
            (True, Value(json="true")),
            (9007199254740993, Value(json="9007199254740993")),
            (-9223372036854775808, Value(json="-9223372036854775808")),
            (1.0, Value(json="1.0")),
            (1e308, Value(json="1e+308")),
            ([1, "é", None], Value(json='[1,"é",null]')),
            ({"a": {"b": ()}}, Value(json='{"a":{"b":[]}}')),
            (Point(x=1), Value(json='{"x":1,"when":null}')),
            (
                [Point(x=1, when=dt.date(2024, 1, 2))],
                Value(json='[{"x":1,"when":"2024-01-02"}]'),
            ),
            (Pair(left=1, right=Point(x=2)), Value(json='{"left":1,"right":{"x":2,"when":null}}')),
            (Colour.RED, Value(json='"red"')),
            ({"when": dt.timedelta(seconds=1)}, Value(json='{"when":"PT1S"}')),
        ],
        ids=repr,
    )
    def test_python_becomes_text_bytes_or_exact_json(self, returned, expected):
        assert task_results.value_of(returned) == expected

    def test_nothing_is_no_value(self):
        assert task_results.value_of(None) is None

    def test_what_has_no_json_is_a_failure_that_says_so(self):
        cycle = []
        cycle.append(cycle)
        for returned in (float("nan"), float("inf"), cycle, object(), {(1, 2): 3}, {"a": object()}):
            assert "no JSON" in refused(task_results.value_of, returned)

    def test_another_message_is_no_value(self):
        assert "Message" in refused(task_results.value_of, conversation_pb2.Message())

    def test_the_json_of_a_set_is_a_list(self):
        assert task_results.value_of({"s": {1}}) == Value(json='{"s":[1]}')


class TestKinds:
    def test_a_reply_may_be_text(self):
        reply = task_results.llm_result("hello").llm
        assert reply.message.role == conversation_pb2.ROLE_ASSISTANT
        assert list(reply.message.content) == [TEXT]

    def test_a_reply_may_be_a_message_which_is_the_assistants(self):
        message = conversation_pb2.Message(role=conversation_pb2.ROLE_USER, content=[TEXT])
        reply = task_results.llm_result(message).llm
        assert reply.message.role == conversation_pb2.ROLE_ASSISTANT
        assert message.role == conversation_pb2.ROLE_USER, "what was returned is not changed"

    def test_a_reply_may_be_a_whole_response(self):
        response = llm_pb2.LlmResponse(model="m", usage=llm_pb2.Usage(input_tokens=1))
        result = task_results.llm_result(response)
        assert result.llm == response
        assert task_results.usage_of(result).input_tokens == 1

    def test_anything_else_is_no_reply(self):
        assert "not dict" in refused(task_results.llm_result, {})

    def test_a_tool_may_return_a_result_a_value_or_content(self):
        result = transition_pb2.ToolResult(is_error=True)
        assert task_results.tool_result(result).tool == result
        assert task_results.tool_result({"a": 1}).tool.output.json == '{"a":1}'
        assert task_results.tool_result([]).tool.output.json == "[]"
        assert not task_results.tool_result(None).tool.HasField("output")
        assert list(task_results.tool_result(TEXT).tool.content) == [TEXT]
        assert list(task_results.tool_result([TEXT, TEXT]).tool.content) == [TEXT, TEXT]
        assert "no JSON" in refused(task_results.tool_result, [TEXT, 1])

    def test_trouble_of_a_tool_is_a_result(self):
        result = task_results.tool_error(ToolError("no such file")).tool
        assert result.is_error
        assert result.output.text == "no such file"

    def test_an_agent_may_say_what_it_cost(self):
        agent = task_pb2.TaskResult.Agent(usage=llm_pb2.Usage(output_tokens=3))
        result = task_results.agent_result(agent)
        assert result.agent == agent
        assert task_results.usage_of(result).output_tokens == 3
        assert task_results.usage_of(task_results.agent_result("done")) is None

    def test_only_a_bool_decides_a_condition(self):
        assert task_results.condition_result(True).condition.holds
        result = task_results.condition_result(False)
        assert result.HasField("condition")
        assert not result.condition.holds
        for returned in (None, 1, "yes", []):
            assert "True or False" in refused(task_results.condition_result, returned)

    def test_a_custom_kind_returns_a_value(self):
        assert task_results.effect_result(3).effect.output.json == "3"
        assert task_results.usage_of(task_results.effect_result(3)) is None
        assert task_results.usage_of(task_results.llm_result("x")) is None
