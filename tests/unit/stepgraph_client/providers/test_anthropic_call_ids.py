"""Ids of calls, as Anthropic's API takes them back in a history."""

from __future__ import annotations

from stepgraph.v1.conversation_pb2 import ContentBlock, Message, ToolCallBlock, ToolResultBlock
from stepgraph_client.providers.anthropic_call_ids import CallIds


def history(*calls):
    return [Message(content=[ContentBlock(tool_call=call)]) for call in calls]


def ids(*calls):
    found = CallIds(history(*calls))
    return [found.of_call(call) for call in calls]


def test_the_provider_reads_its_own_ids():
    """What the provider called a call is what it is told again, for the call and for its result."""
    call = ToolCallBlock(id="1/think/0", provider_id="toolu_01A")
    found = CallIds(history(call))
    assert found.of_call(call) == "toolu_01A"
    assert found.of_result(ToolResultBlock(call_id="1/think/0")) == "toolu_01A"


def test_an_id_that_came_twice_stands_for_one_call_only():
    """Of two calls with one id of the provider, the second gets the server's id, which is unique."""
    first = ToolCallBlock(id="1/think/0", provider_id="call_1")
    second = ToolCallBlock(id="3/think/0", provider_id="call_1")
    assert ids(first, second) == ["call_1", "3_think_0"]


def test_an_id_that_the_api_refuses_is_not_sent():
    """An id of another provider, with characters that are refused, gives way to the server's."""
    assert ids(ToolCallBlock(id="1/a.b/0", provider_id="call:ü")) == ["1_a_b_0"]


def test_ids_that_become_equal_are_kept_apart():
    """Two ids that differ only in what is refused stay different."""
    assert ids(ToolCallBlock(id="1/a/0"), ToolCallBlock(id="1.a.0"), ToolCallBlock(id="")) == [
        "1_a_0",
        "1_a_0_2",
        "_",
    ]


def test_a_longer_history_changes_no_id():
    """What a call was called once, it is called in every later request."""
    calls = [ToolCallBlock(id=f"{n}/think/0", provider_id="same") for n in range(4)]
    assert ids(*calls)[:2] == ids(*calls[:2])


def test_a_result_without_its_call_has_an_id_of_its_own():
    """A result whose call is not in the history is told by what is known of it."""
    found = CallIds([])
    assert found.of_result(ToolResultBlock(call_id="1/a/0", provider_id="toolu_1")) == "toolu_1"
    assert found.of_result(ToolResultBlock(call_id="1/a/0")) == "1_a_0"
