"""Models behind Anthropic's messages API, against a local server that speaks it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager

import anthropic
import httpx2
import pytest

from stepgraph.v1 import conversation_pb2 as pb
from stepgraph.v1.llm_pb2 import LlmRequest, LlmStopReason, Usage
from stepgraph_client import Executor
from stepgraph_client.providers.anthropic_models import AnthropicModels
from stepgraph_client.providers.anthropic_request import Terms
from stepgraph_client.providers.endpoint import Endpoint
from stepgraph_client.task_errors import Failed
from tests.support.model_stand_in import ModelStandIn
from tests.support.model_stand_in_replies import (
    Answer,
    Call,
    Delivery,
    Raw,
    RedactedThinking,
    Text,
    Thinking,
    Trouble,
    calls,
    says,
)
from tests.support.provider_context import Attempt

KEY = "sk-ant-canary-0123456789"
QUESTION = LlmRequest(
    streaming=True,
    messages=[
        pb.Message(
            role=pb.ROLE_USER, content=[pb.ContentBlock(text=pb.TextBlock(text="How many?"))]
        )
    ],
)


@pytest.fixture
async def provider():
    async with ModelStandIn() as stand_in:
        yield stand_in


@asynccontextmanager
async def models_at(url, *, terms=None, **endpoint):
    given = {"base_url": url, "api_key": KEY, "key_name": "ANTHROPIC_API_KEY", **endpoint}
    models = AnthropicModels.at(Endpoint(**given), terms=terms)
    try:
        yield models
    finally:
        await models.close()


@pytest.fixture
async def models(provider):
    async with models_at(provider.anthropic_url) as models:
        yield models


async def ask(models, request=QUESTION, attempt=None):
    return await models.reply("claude-x", request, (attempt or Attempt()).ctx)


async def failure_of(models, request=QUESTION):
    with pytest.raises(Failed) as caught:
        await ask(models, request)
    assert KEY not in str(caught.value)
    assert KEY not in repr(caught.value.details)
    return caught.value


async def test_a_reply_comes_piece_by_piece(provider, models):
    """Text, thoughts and arguments are shown as they come; the whole is their sum, with cost and model."""
    parts = (
        Thinking(text="größer?", signature="sig"),
        RedactedThinking(data="opaque"),
        Text(text="Ich sehe nach → 漢字."),
        Call(name="stock", args='{"item": "Nüsse 漢字"}', id="toolu_1"),
        Call(name="stock", args='{"item": "b"}', id="toolu_2"),
    )
    provider.script(
        Answer(
            parts=parts,
            model="claude-x-20260101",
            input_tokens=50,
            cached_tokens=40,
            delivery=Delivery(piece_chars=3, write_bytes=5),
        )
    )
    attempt = Attempt()
    response = await ask(models, attempt=attempt)
    assert attempt.text == parts[2].text
    assert attempt.thinking == parts[0].text
    shown = ["".join(args for at, _, args in attempt.tool_args if at == index) for index in (0, 1)]
    assert shown == [parts[3].args, parts[4].args]
    content = response.message.content
    assert [block.WhichOneof("kind") for block in content] == [
        *("thinking", "thinking", "text", "tool_call", "tool_call"),
    ]
    assert [each.tool_call.provider_id for each in content[3:]] == ["toolu_1", "toolu_2"]
    assert response.model == "claude-x-20260101"
    assert response.usage == Usage(input_tokens=50, output_tokens=7, cached_input_tokens=40)
    assert LlmStopReason.Name(response.stop_reason) == "LLM_STOP_REASON_TOOL_CALLS"


async def test_thoughts_and_calls_are_sent_back_as_they_came(provider, models):
    """In the next turn the provider reads its own signatures and ids."""
    provider.script(
        Answer(
            parts=(
                Thinking(text="hm", signature="sig=="),
                RedactedThinking(data="opaque"),
                Call(name="stock", args='{"n": 1}', id="toolu_9"),
            )
        ),
        says("three"),
    )
    reply = (await ask(models)).message
    reply.content[2].tool_call.id = "1/think/0"
    result = pb.ContentBlock(tool_result=pb.ToolResultBlock(call_id="1/think/0"))
    messages = [*QUESTION.messages, reply, pb.Message(role=pb.ROLE_TOOL, content=[result])]
    await ask(models, LlmRequest(messages=messages))
    sent = provider.received[1].json["messages"]
    assert sent[1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig=="},
        {"type": "redacted_thinking", "data": "opaque"},
        {"type": "tool_use", "id": "toolu_9", "name": "stock", "input": {"n": 1}},
    ]
    assert sent[2]["content"] == [{"type": "tool_result", "tool_use_id": "toolu_9"}]


async def test_nothing_is_shown_where_no_deltas_are_wanted(provider, models):
    """A reply whose deltas nobody wants is streamed all the same, and shows nothing."""
    provider.script(says("hello"))
    attempt = Attempt()
    request = LlmRequest(messages=QUESTION.messages)
    assert (await ask(models, request, attempt)).message.content[0].text.text == "hello"
    assert attempt.shown == []
    assert provider.received[0].json["stream"] is True


async def test_a_ping_is_a_sign_of_life(provider, models):
    """While a model is silent its provider's pings go on as signs of life, so that no idle limit ends the task."""
    provider.script(says("x"), says("x"))
    attempt, unwatched = Attempt(), Attempt()
    await ask(models, attempt=attempt)
    assert attempt.shown[0] is None, "the ping comes before the first word"
    assert attempt.text == "x"
    await ask(models, LlmRequest(messages=QUESTION.messages), unwatched)
    assert unwatched.shown == []


@pytest.mark.parametrize(
    ("stop", "expected"),
    [("max_tokens", "MAX_TOKENS"), ("refusal", "REFUSED"), ("pause_turn", "OTHER")],
)
async def test_a_reply_that_is_no_answer_says_why(provider, models, stop, expected):
    """A reply that was cut off or refused is a reply with its reason and its cost; the server makes a failure of it."""
    provider.script(Answer(parts=(Text(text="I can"),), stop=stop))
    response = await ask(models)
    assert LlmStopReason.Name(response.stop_reason) == f"LLM_STOP_REASON_{expected}"
    assert response.usage.output_tokens == 7


@pytest.mark.parametrize("in_stream", [False, True], ids=["at once", "in the stream"])
async def test_a_filter_of_the_provider_refuses(provider, models, in_stream):
    """What a filter of the provider stops is a reply that was refused, with what the provider says."""
    trouble = Trouble(
        status=400,
        kind="invalid_request_error",
        message="Output blocked by content filtering policy",
    )
    delivery = Delivery(trouble_after=4, trouble=trouble)
    provider.script(
        Answer(parts=(Text(text="I can"),), delivery=delivery) if in_stream else trouble
    )
    response = await ask(models)
    assert LlmStopReason.Name(response.stop_reason) == "LLM_STOP_REASON_REFUSED"
    assert response.message.content[-1].text.text == trouble.message


async def test_a_call_that_was_cut_off_is_left_out(provider, models):
    """Of a reply that was cut off inside the arguments of a call, that call is no part."""
    provider.script(
        Answer(parts=(Text(text="look"), Call(name="a", args='{"n": ')), stop="max_tokens")
    )
    content = (await ask(models)).message.content
    assert [block.WhichOneof("kind") for block in content] == ["text"]


@pytest.mark.parametrize(
    ("trouble", "code", "retryable"),
    [
        (Trouble(status=400, kind="invalid_request_error"), "REQUEST_REJECTED", False),
        (Trouble(status=401, kind="authentication_error"), "PROVIDER_UNAUTHENTICATED", False),
        (Trouble(status=402, kind="billing_error"), "QUOTA_SPENT", False),
        (Trouble(status=403, kind="permission_error"), "PROVIDER_FORBIDDEN", False),
        (Trouble(status=404, kind="not_found_error"), "MODEL_NOT_FOUND", False),
        (Trouble(status=413, kind="request_too_large"), "REQUEST_TOO_LARGE", False),
        (Trouble(status=429, kind="rate_limit_error"), "RATE_LIMITED", True),
        (Trouble(status=500, kind="api_error"), "PROVIDER_UNAVAILABLE", True),
        (Trouble(status=504, kind="timeout_error"), "PROVIDER_TIMEOUT", True),
        (Trouble(status=529, kind="overloaded_error"), "PROVIDER_UNAVAILABLE", True),
        (
            Trouble(status=400, message="prompt is too long: 210000 tokens > 200000 maximum"),
            *("REQUEST_TOO_LARGE", False),
        ),
        (
            Trouble(status=400, message="Your credit balance is too low to access the API."),
            *("QUOTA_SPENT", False),
        ),
        (
            Trouble(status=500, headers={"x-should-retry": "false"}),
            *("PROVIDER_UNAVAILABLE", False),
        ),
    ],
)
@pytest.mark.parametrize("in_stream", [False, True], ids=["at once", "in the stream"])
async def test_errors_of_the_provider(provider, models, trouble, code, retryable, in_stream):
    """An error has the same code whether it is the answer or comes in the middle of a reply; nothing is tried again here."""
    if in_stream and trouble.headers:
        pytest.skip("a stream that has begun has no further headers")
    if in_stream:
        delivery = Delivery(trouble_after=4, trouble=trouble)
        provider.script(Answer(parts=(Text(text="Hello there"),), delivery=delivery))
    else:
        provider.script(trouble)
    failure = await failure_of(models)
    assert (failure.code, failure.retryable) == (code, retryable)
    assert trouble.message.rstrip(".") in failure.message
    assert failure.details["provider_code"] == trouble.kind
    assert len(provider.received) == 1
    if in_stream:
        assert failure.usage.input_tokens == 12


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        (
            {
                "retry-after": "Wed, 21 Oct 2026 07:28:03 GMT",
                "date": "Wed, 21 Oct 2026 07:28:00 GMT",
            },
            3,
        ),
        ({}, None),
    ],
    ids=["seconds", "milliseconds", "date", "none"],
)
async def test_the_provider_says_when_to_come_again(provider, models, headers, seconds):
    """When the provider says how long to wait, the retry waits that long."""
    provider.script(Trouble(status=429, kind="rate_limit_error", headers=headers))
    wait = (await failure_of(models)).retry_after
    assert (wait and wait.ToTimedelta().total_seconds()) == seconds


async def test_a_reply_that_breaks_off(provider, models):
    """A connection that breaks in the middle of a reply fails with what it has cost so far, and may be tried again."""
    provider.script(Answer(parts=(Text(text="Hello there"),), delivery=Delivery(drop_after=4)))
    failure = await failure_of(models)
    assert (failure.code, failure.category) == ("STREAM_BROKEN", "technical")
    assert failure.usage == Usage(input_tokens=12, output_tokens=1)


SSE = "text/event-stream"


@pytest.mark.parametrize(
    ("raw", "code", "why"),
    [
        (Raw(body=b"<html>hello</html>", content_type="text/html"), "REPLY_MALFORMED", "none of"),
        (Raw(body=b"", content_type=SSE), "REPLY_MALFORMED", "none of the events"),
        (
            Raw(body=b"event: message_start\ndata: {nope\n\n", content_type=SSE),
            *("REPLY_MALFORMED", ""),
        ),
        (Raw(body=b'event: x\ndata: "text"\n\n', content_type=SSE), "REPLY_MALFORMED", "not str"),
        (
            Raw(body=b"event: x\ndata: " + b"[" * 100_000 + b"\n\n", content_type=SSE),
            *("REPLY_MALFORMED", ""),
        ),
        (Raw(body=b"event: error\ndata: oh no\n\n", content_type=SSE), "STREAM_BROKEN", "oh no"),
        (Raw(body=b"<html>bad gateway</html>", status=502), "PROVIDER_UNAVAILABLE", "bad gateway"),
        (
            Raw(
                body=b'event: message_start\ndata: {"type": "message_start", "message": '
                b'{"model": "m", "usage": {"input_tokens": 3}}}\n\n',
                content_type=SSE,
            ),
            *("STREAM_BROKEN", "no end"),
        ),
    ],
    ids=["html", "nothing", "no JSON", "text", "too deep", "bare error", "gateway", "no end"],
)
async def test_what_is_no_reply(provider, models, raw, code, why):
    """What is not what the API promises is a failure that says so, and may be tried again."""
    provider.script(raw)
    failure = await failure_of(models)
    assert failure.code == code
    assert why in failure.message
    assert failure.category == "technical"


async def test_a_provider_that_is_not_there():
    """Without a connection the failure says where it was looked for."""
    async with models_at("http://127.0.0.1:1") as models:
        failure = await failure_of(models)
    assert failure.code == "PROVIDER_UNREACHABLE"
    assert "http://127.0.0.1:1" in failure.message


async def test_what_the_sdk_makes_of_it_otherwise(models):
    """An error of the SDK that is about neither the connection nor a status is about the reply."""
    request = httpx2.Request("POST", "http://127.0.0.1/v1/messages")
    error = anthropic.APIResponseValidationError(httpx2.Response(200, request=request), None)
    failure = models._refused(error, "claude-x")
    assert failure.code == "REPLY_MALFORMED"


@pytest.mark.parametrize("hold_after", [0, 4], ids=["before the reply", "inside the reply"])
async def test_silence_has_an_end(provider, hold_after):
    """A provider that falls silent is given up after the limit, before its reply and inside of it."""
    provider.script(
        Answer(parts=(Text(text="Hello there"),), delivery=Delivery(hold_after=hold_after))
    )
    async with models_at(provider.anthropic_url, silence_timeout_s=0.2) as models:
        failure = await failure_of(models)
    assert failure.code == "PROVIDER_TIMEOUT"
    assert "0.2 s" in failure.message


@pytest.mark.parametrize("hold_after", [0, 4], ids=["before the reply", "inside the reply"])
async def test_a_cancel_ends_the_request(provider, models, hold_after):
    """Cancelled, the call ends the HTTP request at once: the provider sees its caller go."""
    provider.script(
        Answer(parts=(Text(text="Hello there"),), delivery=Delivery(hold_after=hold_after))
    )
    asking = asyncio.get_running_loop().create_task(ask(models))
    received = await provider.sent(hold_after)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    async with asyncio.timeout(5):
        await received.ended.wait()
    assert received.disconnected


async def test_two_calls_at_once_do_not_meet(provider, models):
    """Replies of two calls that run at once stay apart."""
    held = Delivery(hold_after=4)
    provider.script(
        Answer(parts=(Text(text="first reply"),), delivery=held),
        Answer(parts=(Text(text="other words"),), delivery=held),
    )
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ask(models)) for _ in range(2)]
        for request in range(2):
            await provider.sent(4, request=request)
        provider.release()
    texts = {task.result().message.content[0].text.text for task in asked}
    assert texts == {"first reply", "other words"}


async def test_the_request_has_the_key_and_the_version(provider, models):
    """The key goes into the header of the API, and the version of the API is the one this was written for."""
    provider.script(says("x"))
    await ask(models)
    headers = provider.received[0].headers
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["anthropic-version"] == "2026-10-21"
    assert provider.received[0].path == "/v1/messages"


async def test_a_server_without_keys_is_sent_none(provider, monkeypatch):
    """Without a key none is sent, whatever the environment has; `/v1` may stand in the base URL or not."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-somebody-else")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token-of-somebody-else")
    provider.script(says("x"))
    terms = Terms(api_version="2023-06-01")
    async with models_at(f"{provider.anthropic_url}/v1/", api_key="", terms=terms) as models:
        request = LlmRequest(messages=QUESTION.messages, temperature=0.5)
        await ask(models, request)
    received = provider.received[0]
    assert "authorization" not in received.headers
    assert "x-api-key" not in received.headers
    assert received.path == "/v1/messages"
    assert received.headers["anthropic-version"] == "2023-06-01"
    assert received.json["temperature"] == 0.5


async def test_a_client_of_ones_own(provider):
    """A client that a program has already is used with its key and its timeout, and tries nothing again."""
    client = anthropic.AsyncAnthropic(
        api_key=KEY, base_url=provider.anthropic_url, timeout=0.2, max_retries=5
    )
    models = AnthropicModels(client=client, models=["claude-x"])
    executor = Executor("127.0.0.1:1", executor_id="e")
    models.host_on(executor)
    with pytest.raises(ValueError, match="claude-x"):
        models.host_on(executor)
    assert models.address == provider.anthropic_url
    provider.script(
        Trouble(status=529), Answer(parts=(Text(text="x"),), delivery=Delivery(hold_after=0))
    )
    assert (await failure_of(models)).code == "PROVIDER_UNAVAILABLE"
    assert "0.2 s" in (await failure_of(models)).message
    assert len(provider.received) == 2
    await models.close()


async def test_a_client_without_a_timeout(models):
    """A client that waits for ever is one: nothing is made up."""
    client = anthropic.AsyncAnthropic(api_key=KEY, timeout=None)
    assert AnthropicModels(client=client)._silence_s == float("inf")
    await client.close()


async def test_options_of_the_provider_reach_it(provider, models):
    """What only this provider understands is part of the body."""
    provider.script(says("x"))
    options = '{"metadata": {"user_id": "u1"}, "stop_sequences": ["END"]}'
    await ask(models, LlmRequest(messages=QUESTION.messages, provider_options=options))
    sent = provider.received[0].json
    assert (sent["metadata"], sent["stop_sequences"]) == ({"user_id": "u1"}, ["END"])


async def test_the_key_is_in_no_log(provider, models, caplog):
    """Not even the most talkative log has the key, also where the provider echoes it."""
    caplog.set_level(logging.DEBUG)
    provider.script(Trouble(status=401, message=f"invalid key {KEY}"), calls(Call(name="a")))
    failure = await failure_of(models)
    assert "invalid key [key]" in failure.message
    assert "ANTHROPIC_API_KEY" in failure.message
    await ask(models)
    assert caplog.records
    assert KEY not in caplog.text


async def test_the_models_of_the_endpoint(provider, models):
    """The names of the models are those that the endpoint lists."""
    listed = (
        b'{"data": [{"id": "claude-a", "type": "model"}, {"id": "claude-b"}], "has_more": false}'
    )
    provider.script(Raw(body=listed))
    assert list(await models.known_models()) == ["claude-a", "claude-b"]
    assert provider.received[0].path.startswith("/v1/models?limit=")


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Trouble(status=401, kind="authentication_error"), "PROVIDER_UNAUTHENTICATED"),
        (Raw(body=b"{nope"), "REPLY_MALFORMED"),
        (Raw(body=b'{"data": 7}'), "REPLY_MALFORMED"),
        (Raw(body=b'{"data": [{}]}'), "REPLY_MALFORMED"),
        (Raw(body=b"<html>", content_type="text/html"), "REPLY_MALFORMED"),
    ],
    ids=["no key", "no JSON", "no list", "no names", "html"],
)
async def test_models_that_can_not_be_listed(provider, models, reply, code):
    """An endpoint that does not list its models says why, or is no such endpoint."""
    provider.script(reply)
    with pytest.raises(Failed) as caught:
        await models.known_models()
    assert caught.value.code == code


async def test_closing_twice_is_fine(models):
    """Closing is idempotent."""
    await models.close()
    await models.close()
