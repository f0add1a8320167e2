"""Answers of an OpenAI-compatible API, and what they add to a reply."""

from __future__ import annotations

import pytest

from stepgraph.v1 import llm_pb2 as pb
from stepgraph_client.providers.echoes import unpacked
from stepgraph_client.providers.openai_answers import (
    Answers,
    BrokenOff,
    MalformedAnswer,
    listed_in,
)
from stepgraph_client.providers.reply import Reply
from stepgraph_client.providers.tool_names import ToolNames
from tests.support.provider_context import Attempt


class Reading:
    """Reads chunks into a reply."""

    def __init__(self, *names, streaming=True):
        self.attempt = Attempt()
        self.reply = Reply(self.attempt.ctx, streaming=streaming)
        self.answers = Answers(self.reply, ToolNames(names), streaming=streaming)

    def deltas(self, *deltas, finish_reason=None):
        for delta in deltas:
            self.answers.read({"choices": [{"index": 0, "delta": delta}]})
        if finish_reason:
            choice = {"index": 0, "delta": {}, "finish_reason": finish_reason}
            self.answers.read({"choices": [choice]})

    @property
    def calls(self):
        """The calls, each as (name, arguments, id of the provider)."""
        blocks = [each.tool_call for each in self.reply.response().message.content]
        return [(each.name, each.args, each.provider_id) for each in blocks]


def call(index, name=None, args=None, call_id=None, **extra):
    function = {"name": name, "arguments": args}
    return {"tool_calls": [{"index": index, "id": call_id, "function": function, **extra}]}


@pytest.mark.parametrize(
    ("finish_reason", "stop_reason"),
    [
        ("stop", pb.LLM_STOP_REASON_END),
        ("length", pb.LLM_STOP_REASON_MAX_TOKENS),
        ("content_filter", pb.LLM_STOP_REASON_REFUSED),
        ("tool_calls", pb.LLM_STOP_REASON_TOOL_CALLS),
        ("function_call", pb.LLM_STOP_REASON_TOOL_CALLS),
        ("something_new", pb.LLM_STOP_REASON_OTHER),
    ],
)
async def test_why_the_model_stopped_is_in_our_words(finish_reason, stop_reason):
    """Every finish reason has a stop reason; one that is not known is OTHER."""
    reading = Reading()
    reading.deltas({"content": "x"}, finish_reason=finish_reason)
    reading.answers.end()
    assert reading.reply.response().stop_reason == stop_reason


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_thoughts_are_read_under_either_name(name):
    """Servers call thoughts by two names."""
    reading = Reading()
    reading.deltas({name: "hm"}, {name: "m", "content": None})
    assert reading.reply.response().message.content[0].thinking.text == "hmm"


async def test_a_refusal_is_text_and_a_stop_reason():
    """What a model says as a refusal is its text, and the reply is refused, although it ended as usual."""
    reading = Reading()
    reading.deltas({"refusal": "I can't"}, finish_reason="stop")
    response = reading.reply.response()
    assert response.stop_reason == pb.LLM_STOP_REASON_REFUSED
    assert response.message.content[0].text.text == "I can't"


async def test_usage_has_what_is_cached_and_what_was_thought():
    """Usage is read from wherever it comes, with its details; the last one counts."""
    reading = Reading()
    reading.answers.read({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 7},
    }
    reading.answers.read({"model": "m-1", "choices": None, "usage": usage})
    assert reading.reply.usage == pb.Usage(
        input_tokens=10, output_tokens=20, cached_input_tokens=5, reasoning_tokens=7
    )
    assert reading.reply.model == "m-1"


async def test_usage_without_details_is_usage():
    """Details may be absent or null."""
    reading = Reading()
    usage = {"prompt_tokens": 3, "completion_tokens": None, "prompt_tokens_details": None}
    reading.answers.read({"usage": usage})
    assert reading.reply.usage == pb.Usage(input_tokens=3)


async def test_parallel_calls_are_told_apart_by_index():
    """Pieces of several calls may come mixed; ids that are missing or the same change nothing."""
    reading = Reading()
    reading.deltas(
        call(0, "add", '{"a"', "call_1"),
        call(1, "add", "{", "call_1"),
        call(0, None, ":1}"),
        call(1, None, "}"),
        call(2, "add", "{}"),
    )
    assert reading.calls == [
        ("add", '{"a":1}', "call_1"),
        ("add", "{}", "call_1"),
        ("add", "{}", ""),
    ]


async def test_calls_that_all_have_index_0_are_told_apart_by_id():
    """A server that sends whole calls, all with index 0, has sent several if their ids differ."""
    reading = Reading()
    reading.deltas(call(0, "a", "{}", "x"), call(0, "b", "{}", "y"), call(0, None, "", "y"))
    assert reading.calls == [("a", "{}", "x"), ("b", "{}", "y")]


async def test_calls_without_an_index_begin_with_a_name_or_an_id():
    """Without an index a piece with a name or an id begins a call, and any other goes on with the last."""
    reading = Reading()
    reading.deltas(
        call(None, "a", '{"n"'), call(None, None, ":1}"), call(None, "b", "{}"), call(None, "b", "")
    )
    assert reading.calls == [("a", '{"n":1}', ""), ("b", "{}", ""), ("b", "", "")]


async def test_an_id_that_comes_late_or_again_is_the_same_call():
    """An id may come after the first piece, and with each one."""
    reading = Reading()
    reading.deltas(call(0, "a", "{"), call(0, None, "", "x"), call(0, None, "}", "x"))
    assert reading.calls == [("a", "{}", "x")]


async def test_a_name_is_read_back():
    """A name that was written otherwise for the provider is the tool's own again."""
    reading = Reading("files.read")
    reading.deltas(call(0, "files_read", "{}"))
    assert reading.calls == [("files.read", "{}", "")]


async def test_what_a_provider_adds_to_a_call_is_kept_for_it():
    """What only one provider knows of a call, such as the signature of a thought, is kept as its data."""
    reading = Reading()
    extra = {"google": {"thought_signature": "sig"}}
    reading.deltas(call(0, "a", "{}", "x", extra_content=extra), call(0, None, ""))
    (block,) = reading.reply.response().message.content
    assert unpacked("openai", block.tool_call.provider_data) == {"extra_content": extra}


async def test_a_whole_completion_is_read_the_same_way():
    """A completion that is not streamed has messages in place of deltas, and calls without an index."""
    reading = Reading(streaming=False)
    function = {"name": "add", "arguments": '{"a": 1}'}
    calls = [{"id": "x", "type": "function", "function": function}] * 2
    message = {"role": "assistant", "content": "so", "tool_calls": calls}
    reading.answers.read({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    reading.answers.end()
    response = reading.reply.response()
    assert response.message.content[0].text.text == "so"
    assert [each.tool_call.args for each in response.message.content[1:]] == ['{"a": 1}'] * 2
    assert reading.attempt.shown == []


async def test_only_the_first_choice_counts():
    """A server that sends more choices than were asked for is read as far as it was asked."""
    reading = Reading()
    for index in (0, 1):
        choice = {"index": index, "delta": {"content": str(index)}}
        reading.answers.read({"choices": [choice]})
    assert reading.reply.response().message.content[0].text.text == "0"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<html>", "Input should be"),
        ([1], "Input should be"),
        ({"choices": "x"}, r"^choices: Input should be a valid list"),
        ({"choices": [{"delta": {"content": 5}}]}, r"^choices.0.delta.content: "),
        (
            {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": {}}}]}}]},
            r"^choices.0.delta.tool_calls.0.function.arguments: Input should be a valid string",
        ),
        ({"usage": {"prompt_tokens": -1}}, r"^usage.prompt_tokens: "),
        ({"usage": {"prompt_tokens": 2**64}}, r"^usage.prompt_tokens: "),
    ],
    ids=["text", "a list", "choices", "content", "arguments", "negative", "too large"],
)
async def test_what_is_not_what_the_api_promises_is_told_with_its_path(content, message):
    """An answer of another shape is malformed; the message has the path, and nothing of what was sent."""
    with pytest.raises(MalformedAnswer, match=message):
        Reading().answers.read(content)


async def test_a_stream_that_does_not_say_why_it_ends_has_broken_off():
    """Without a finish reason a stream has broken off, however much of it came."""
    reading = Reading()
    with pytest.raises(BrokenOff, match="why the model stopped"):
        reading.answers.end()
    reading.deltas({"content": "x"})
    with pytest.raises(BrokenOff, match="why the model stopped"):
        reading.answers.end()


async def test_a_server_may_say_that_the_model_failed():
    """A finish reason `error` is no end."""
    reading = Reading()
    reading.deltas({"content": "x"}, finish_reason="error")
    with pytest.raises(BrokenOff, match="the model failed"):
        reading.answers.end()


async def test_a_completion_has_a_choice():
    """A completion without a choice is malformed; one whose finish reason is missing is whole."""
    reading = Reading(streaming=False)
    reading.answers.read({"choices": []})
    with pytest.raises(MalformedAnswer, match="no choice"):
        reading.answers.end()
    reading.answers.read({"choices": [{"message": {"content": "x"}}]})
    reading.answers.end()


def test_a_list_of_models_is_a_list_of_names():
    """A list of models is read for its names; anything else is malformed."""
    assert listed_in({"object": "list", "data": [{"id": "a", "owned_by": "me"}, {"id": "b"}]}) == [
        "a",
        "b",
    ]
    for content in ({"data": None}, {"data": [{"id": 5}]}, {}, "x"):
        with pytest.raises(MalformedAnswer):
            listed_in(content)
