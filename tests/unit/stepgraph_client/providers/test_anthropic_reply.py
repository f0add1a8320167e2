"""The events of Anthropic's messages API, collected into a reply."""

from __future__ import annotations

import pytest

from stepgraph.v1.llm_pb2 import LlmStopReason, Usage
from stepgraph_client.providers.anthropic_reply import ReplyEvents
from stepgraph_client.providers.echoes import unpacked
from stepgraph_client.providers.reply import Reply
from stepgraph_client.providers.tool_names import ToolNames
from stepgraph_client.task_errors import Failed
from tests.support.provider_context import Attempt

START = {
    "type": "message_start",
    "message": {"model": "m-1", "usage": {"input_tokens": 5, "output_tokens": 1}},
}
STOP = {"type": "message_stop"}


def opened(block, index=0):
    return {"type": "content_block_start", "index": index, "content_block": block}


def more(delta, index=0):
    return {"type": "content_block_delta", "index": index, "delta": delta}


def ended(reason="end_turn", **usage):
    delta = {"stop_reason": reason}
    return {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9, **usage}}


def text(words, index=0):
    return [
        opened({"type": "text", "text": ""}, index),
        more({"type": "text_delta", "text": words}, index),
    ]


class Taking:
    """Events on their way into a reply."""

    def __init__(self, *events, names=()):
        self.attempt = Attempt()
        self.reply = Reply(self.attempt.ctx, streaming=True)
        self.events = ReplyEvents(self.reply, ToolNames(names))
        for event in events:
            self.events.take(event)

    @property
    def response(self):
        return self.reply.response()


async def test_a_text_comes_in_pieces_and_ends():
    """Pieces of a text are shown as they come, and are one block in the end, with the model's name."""
    taking = Taking(START, *text("He"), more({"type": "text_delta", "text": "llo"}))
    assert taking.attempt.text == "Hello"
    assert not taking.events.has_ended
    for event in (ended(), STOP):
        taking.events.take(event)
    assert taking.events.has_ended
    assert [block.text.text for block in taking.response.message.content] == ["Hello"]
    assert taking.response.model == "m-1"


async def test_calls_keep_their_ids_and_arguments_as_they_were_written():
    """Parallel calls have their own arguments, to the letter, and the names that the graph knows."""
    taking = Taking(
        START,
        *text("look", 0),
        opened({"type": "tool_use", "id": "t1", "name": "shop_stock", "input": {}}, 1),
        more({"type": "input_json_delta", "partial_json": ""}, 1),
        opened({"type": "tool_use", "id": "t2", "name": "order", "input": {}}, 2),
        more({"type": "input_json_delta", "partial_json": '{"n": 1.'}, 1),
        more({"type": "input_json_delta", "partial_json": "0}"}, 1),
        ended("tool_use"),
        STOP,
        names=["shop.stock", "order"],
    )
    calls = [block.tool_call for block in taking.response.message.content[1:]]
    assert [(each.name, each.args, each.provider_id) for each in calls] == [
        ("shop.stock", '{"n": 1.0}', "t1"),
        ("order", "", "t2"),
    ]
    assert taking.attempt.tool_args == [
        (0, "shop.stock", ""),
        (1, "order", ""),
        (0, "", '{"n": 1.'),
        (0, "", "0}"),
    ]


async def test_thoughts_keep_what_the_provider_wants_back():
    """A signature and redacted thoughts are kept with their blocks; the text of thoughts is shown."""
    taking = Taking(
        START,
        opened({"type": "thinking", "thinking": "", "signature": ""}, 0),
        more({"type": "thinking_delta", "thinking": "hm"}, 0),
        more({"type": "signature_delta", "signature": "sig=="}, 0),
        opened({"type": "redacted_thinking", "data": "opaque"}, 1),
        opened({"type": "thinking", "thinking": "", "signature": ""}, 2),
        more({"type": "signature_delta", "signature": "only"}, 2),
        ended(),
        STOP,
    )
    thoughts = [block.thinking for block in taking.response.message.content]
    assert [(each.text, unpacked("anthropic", each.provider_data)) for each in thoughts] == [
        ("hm", {"signature": "sig=="}),
        ("", {"redacted": "opaque"}),
        ("", {"signature": "only"}),
    ]
    assert taking.attempt.thinking == "hm"


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("end_turn", "END"),
        ("stop_sequence", "END"),
        ("tool_use", "TOOL_CALLS"),
        ("max_tokens", "MAX_TOKENS"),
        ("model_context_window_exceeded", "MAX_TOKENS"),
        ("refusal", "REFUSED"),
        ("pause_turn", "OTHER"),
        ("a_newer_reason", "OTHER"),
    ],
)
async def test_why_the_model_stopped(word, expected):
    """Each reason of the provider has its own in the schema; one that is newer is another reason."""
    taking = Taking(START, *text("x"), ended(word), STOP)
    name = LlmStopReason.Name(taking.response.stop_reason)
    assert name == f"LLM_STOP_REASON_{expected}"


async def test_what_it_cost_is_whole():
    """What was read from and written to the cache is part of the input; the last count of the output counts."""
    start = {
        "type": "message_start",
        "message": {
            "model": "m",
            "usage": {
                "input_tokens": 5,
                "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 20,
                "output_tokens": 1,
            },
        },
    }
    taking = Taking(start, *text("x"))
    assert taking.reply.usage == Usage(input_tokens=125, output_tokens=1, cached_input_tokens=100)
    details = {"thinking_tokens": 30}
    taking.events.take(ended(input_tokens=None, output_tokens=40, output_tokens_details=details))
    assert taking.reply.usage == Usage(
        input_tokens=125, output_tokens=40, cached_input_tokens=100, reasoning_tokens=30
    )


async def test_what_is_newer_is_passed_over():
    """Events and deltas of a newer kind, and pings, change nothing."""
    taking = Taking(
        START,
        {"type": "ping"},
        {"type": "weather", "index": "?"},
        *text("x"),
        more({"type": "citations_delta", "citation": {}}),
        {"type": "content_block_stop", "index": 0},
        ended(),
        STOP,
    )
    assert [block.text.text for block in taking.response.message.content] == ["x"]


async def test_a_block_that_can_not_be_kept_is_no_reply():
    """A block of a newer kind ends the task, since the conversation could not go on without it."""
    with pytest.raises(Failed, match="a block of the kind 'server_tool_use'") as caught:
        Taking(START, opened({"type": "server_tool_use", "id": "s"}))
    assert (caught.value.code, caught.value.retryable) == ("CONTENT_UNSUPPORTED", False)
    assert caught.value.usage.input_tokens == 5


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ([], "an event is an object, not list"),
        ({"type": "message_start"}, "in message_start, message is not an object"),
        (
            {"type": "message_start", "message": {"usage": {}}},
            "in an object, model is not text",
        ),
        (opened("text"), "content_block is not an object"),
        (opened({"type": "text", "text": ""}, None), "index is not a number"),
        (opened({"type": "tool_use", "name": "a"}), "in tool_use, id is not text"),
        (more({"type": "text_delta", "text": 7}), "in text_delta, text is not text"),
        (ended(7), "stop_reason is not text"),
        ({"type": "message_delta", "delta": {}}, "usage is not an object"),
        (STOP, "without a stop_reason"),
    ],
)
async def test_what_the_api_does_not_promise_is_named(event, why):
    """What lacks a field, or has another type there, is refused with the name of the field."""
    taking = Taking(START)
    with pytest.raises(ValueError, match=why):
        taking.events.take(event)
