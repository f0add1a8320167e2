"""A reply as it comes."""

from __future__ import annotations

import pytest

from stepgraph.v1 import conversation_pb2 as conv
from stepgraph.v1 import llm_pb2 as pb
from stepgraph_client.providers import reply as reply_module
from stepgraph_client.providers.reply import Reply
from stepgraph_client.task_errors import Failed
from tests.support.provider_context import Attempt


def replying(*, streaming=True):
    attempt = Attempt()
    return Reply(attempt.ctx, streaming=streaming), attempt


async def test_pieces_are_shown_as_they_come_and_are_whole_in_the_end():
    """Each piece is a delta; the reply has each block once, in the order in which they began."""
    reply, attempt = replying()
    reply.thinking("h")
    reply.thinking("m", provider_data=b"sig")
    reply.text("he")
    reply.call('{"a"', key=0, name="add", provider_id="c1")
    reply.call("{}", key=1, name="sub")
    reply.text("llo")
    reply.call(":1}", key=0)
    reply.usage = pb.Usage(input_tokens=2, output_tokens=3)
    reply.model = "m-1"
    response = reply.response()
    assert response == pb.LlmResponse(
        message=conv.Message(
            role=conv.ROLE_ASSISTANT,
            content=[
                {"thinking": {"text": "hm", "provider_data": b"sig"}},
                {"text": {"text": "hello"}},
                {"tool_call": {"name": "add", "args": '{"a":1}', "provider_id": "c1"}},
                {"tool_call": {"name": "sub", "args": "{}"}},
            ],
        ),
        stop_reason=pb.LLM_STOP_REASON_TOOL_CALLS,
        usage=pb.Usage(input_tokens=2, output_tokens=3),
        model="m-1",
    )
    assert (attempt.thinking, attempt.text) == ("hm", "hello")
    assert attempt.tool_args == [(0, "add", '{"a"'), (1, "sub", "{}"), (0, "", ":1}")]


async def test_nothing_is_shown_that_nobody_wants():
    """Without streaming the reply is the same, and no delta is sent."""
    reply, attempt = replying(streaming=False)
    reply.text("a")
    reply.thinking("b")
    reply.call("{}", key=0, name="f")
    assert len(reply.response().message.content) == 3
    assert attempt.shown == []


async def test_a_name_that_is_repeated_counts_once():
    """Servers that repeat name and id with every piece, and those that send the name late, give the same call."""
    reply, attempt = replying()
    reply.call("", key=0, provider_id="c1")
    reply.call("", key=0, name="add", provider_id="c1")
    reply.call("{}", key=0, name="add", provider_id="c1")
    (block,) = reply.response().message.content
    assert block.tool_call == conv.ToolCallBlock(name="add", args="{}", provider_id="c1")
    assert attempt.tool_args == [(0, "add", ""), (0, "", "{}")]


async def test_an_empty_reply_has_no_blocks():
    """A model that said nothing has said nothing: pieces without text make no block."""
    reply, attempt = replying()
    assert reply.is_empty
    reply.text("")
    reply.thinking("")
    assert not reply.is_empty
    assert list(reply.response().message.content) == []
    assert reply.response().stop_reason == pb.LLM_STOP_REASON_END
    assert attempt.shown == []


async def test_thought_that_is_hidden_is_kept_for_the_provider():
    """A thought without text stays, because the provider wants its data back."""
    reply, _ = replying()
    reply.thinking("", provider_data=b"sealed")
    (block,) = reply.response().message.content
    assert block.thinking == conv.ThinkingBlock(provider_data=b"sealed")


@pytest.mark.parametrize(
    "stop", [pb.LLM_STOP_REASON_MAX_TOKENS, pb.LLM_STOP_REASON_REFUSED, pb.LLM_STOP_REASON_OTHER]
)
async def test_a_call_that_was_cut_off_is_no_call(stop):
    """Where the model was stopped, a call whose arguments are not whole is left out; whole ones stay."""
    reply, _ = replying()
    reply.call('{"a":1}', key=0, name="add")
    reply.call('{"a"', key=1, name="add")
    reply.call("[" * 100_000, key=2, name="add")
    reply.stop_reason = stop
    response = reply.response()
    assert [each.tool_call.args for each in response.message.content] == ['{"a":1}']
    assert response.stop_reason == stop


async def test_arguments_that_are_no_json_are_the_models_and_stay():
    """A model that ended by itself is told by the server what is wrong with its arguments, so they stay."""
    reply, _ = replying()
    reply.call("nonsense", key=0, name="add")
    assert reply.response().message.content[0].tool_call.args == "nonsense"


async def test_a_call_without_a_name_is_no_reply():
    """A call that names no tool is no reply, and is told by its place."""
    reply, _ = replying()
    reply.call("{}", key="a", name="add")
    reply.call("{}", key="b")
    with pytest.raises(ValueError, match="call 1 names no tool"):
        reply.response()


async def test_a_reply_is_bounded(monkeypatch):
    """A reply that grows without end is stopped, and its cost is told."""
    monkeypatch.setattr(reply_module, "MAX_REPLY_BYTES", 10)
    reply, _ = replying()
    reply.usage = pb.Usage(output_tokens=5)
    reply.text("12345678")
    with pytest.raises(Failed, match="more than 10 bytes") as caught:
        reply.text("éé")
    assert (caught.value.code, caught.value.retryable) == ("REPLY_TOO_LARGE", None)
    assert caught.value.category == "limit"
    assert caught.value.usage == pb.Usage(output_tokens=5)


async def test_blocks_are_bounded(monkeypatch):
    """A reply of endless blocks is stopped too."""
    monkeypatch.setattr(reply_module, "MAX_BLOCKS", 2)
    reply, _ = replying()
    reply.call("", key=0)
    reply.call("", key=1)
    with pytest.raises(Failed, match="2 blocks"):
        reply.call("", key=2)


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_sign_of_life_is_shown_where_deltas_are_wanted(streaming):
    """A sign of life is no piece, and is only shown where an idle limit holds."""
    reply, attempt = replying(streaming=streaming)
    reply.alive()
    assert attempt.shown == ([None] if streaming else [])
    assert reply.size_bytes == 0
