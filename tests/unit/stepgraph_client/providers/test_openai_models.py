"""Models behind an OpenAI-compatible API, asked over HTTP at a stand-in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging

import httpx2
import openai
import pytest

from stepgraph.v1 import conversation_pb2 as conv
from stepgraph.v1 import llm_pb2 as pb
from stepgraph_client.executor import Executor
from stepgraph_client.providers.endpoint import Endpoint
from stepgraph_client.providers.openai_dialect import Dialect
from stepgraph_client.providers.openai_models import OpenAIModels
from stepgraph_client.task_errors import Failed
from tests.support.model_stand_in import ModelStandIn
from tests.support.model_stand_in_replies import (
    Answer,
    Call,
    Delivery,
    Raw,
    RefusalText,
    Text,
    Thinking,
    Trouble,
    calls,
    says,
)
from tests.support.provider_context import Attempt

KEY = "sk-canary-0123456789"
EVENTS = "text/event-stream"


@pytest.fixture
async def provider():
    async with ModelStandIn() as stand_in:
        yield stand_in


@contextlib.asynccontextmanager
async def models_at(url, dialect=None, **settings):
    endpoint = Endpoint(base_url=url, api_key=KEY, key_name="MY_KEY", **settings)
    models = OpenAIModels.at(endpoint, dialect=dialect)
    try:
        yield models
    finally:
        await models.close()


@pytest.fixture
async def models(provider):
    async with models_at(provider.openai_url) as models:
        yield models


def asking(text="hi", **fields):
    fields.setdefault("streaming", True)
    message = conv.Message(role=conv.ROLE_USER, content=[{"text": {"text": text}}])
    return pb.LlmRequest(model="graph-name", messages=[message], **fields)


async def failure(models, attempt=None, **fields):
    with pytest.raises(Failed) as caught:
        await models.reply("m", asking(**fields), (attempt or Attempt()).ctx)
    assert "canary" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("write_bytes", [0, 1])
async def test_a_reply_has_all_that_the_model_said(provider, models, streaming, write_bytes):
    """Text, thoughts, parallel calls with their ids, usage, stop reason and model are in the reply, streamed or not."""
    parts = (
        Thinking(text="let me see"),
        Text(text="I'll löök ☃"),
        Call(name="stock", args='{"item": "nuts"}', id="c1"),
        Call(name="stock", args='{"item": "bolts"}', id="c2"),
    )
    cost = {"input_tokens": 30, "output_tokens": 20, "cached_tokens": 10, "reasoning_tokens": 5}
    delivery = Delivery(piece_chars=5, write_bytes=write_bytes)
    provider.script(Answer(parts=parts, model="m-2026", delivery=delivery, **cost))
    attempt = Attempt()
    response = await models.reply("m", asking(streaming=streaming), attempt.ctx)
    assert response == pb.LlmResponse(
        message=conv.Message(
            role=conv.ROLE_ASSISTANT,
            content=[
                {"thinking": {"text": "let me see"}},
                {"text": {"text": "I'll löök ☃"}},
                {"tool_call": {"name": "stock", "args": '{"item": "nuts"}', "provider_id": "c1"}},
                {"tool_call": {"name": "stock", "args": '{"item": "bolts"}', "provider_id": "c2"}},
            ],
        ),
        stop_reason=pb.LLM_STOP_REASON_TOOL_CALLS,
        usage=pb.Usage(
            input_tokens=30, output_tokens=20, cached_input_tokens=10, reasoning_tokens=5
        ),
        model="m-2026",
    )
    if streaming:
        assert (attempt.thinking, attempt.text) == ("let me see", "I'll löök ☃")
        assert {(index, name) for index, name, _ in attempt.tool_args if name} == {
            (0, "stock"),
            (1, "stock"),
        }
        assert "".join(piece for index, _, piece in attempt.tool_args if index == 1) == (
            '{"item": "bolts"}'
        )
    else:
        assert attempt.shown == []


async def test_the_request_is_what_was_asked(provider, models):
    """The provider's name of the model, the body and the key go out; nothing else is asked."""
    provider.script(says("hello"))
    options = '{"seed": 7, "top_k": 3}'
    await models.reply("m", asking(max_tokens=9, provider_options=options), Attempt().ctx)
    (received,) = provider.received
    assert received.json == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 9,
        "seed": 7,
        "top_k": 3,
    }
    assert received.headers["authorization"] == f"Bearer {KEY}"


async def test_a_server_that_knows_no_usage_is_not_asked_for_it(provider):
    """A dialect without usage sends no `stream_options`, and the reply has no usage."""
    provider.script(says("hello"))
    async with models_at(provider.openai_url, Dialect(asks_for_usage=False)) as models:
        response = await models.reply("m", asking(), Attempt().ctx)
    assert "stream_options" not in provider.received[0].json
    assert not response.HasField("usage")


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    ("answer", "stop_reason"),
    [
        (says("done"), pb.LLM_STOP_REASON_END),
        (Answer(parts=(Text(text="half"),), stop="length"), pb.LLM_STOP_REASON_MAX_TOKENS),
        (Answer(parts=(Text(text="no"),), stop="content_filter"), pb.LLM_STOP_REASON_REFUSED),
        (Answer(parts=(RefusalText(text="I won't"),)), pb.LLM_STOP_REASON_REFUSED),
        (Answer(parts=(Call(name="f"),), stop="stop"), pb.LLM_STOP_REASON_TOOL_CALLS),
        (Answer(parts=(Text(text="x"),), stop="novel"), pb.LLM_STOP_REASON_OTHER),
    ],
    ids=["end", "cut off", "filtered", "refused", "calls", "other"],
)
async def test_why_it_stopped_is_told(provider, models, answer, stop_reason, streaming):
    """A reply that ended, was cut off, filtered or refused says so; none of that is a failure here."""
    provider.script(answer)
    response = await models.reply("m", asking(streaming=streaming), Attempt().ctx)
    assert response.stop_reason == stop_reason
    assert response.usage.output_tokens == 7


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_filter_that_refuses_the_request_is_a_refusal(provider, models, streaming):
    """A content filter that answers with an error has refused, as one that ends the reply has."""
    said = f"filtered {KEY}"
    provider.script(Trouble(status=400, code="content_filter", message=said))
    response = await models.reply("m", asking(streaming=streaming), Attempt().ctx)
    assert response.stop_reason == pb.LLM_STOP_REASON_REFUSED
    assert response.message.content[0].text.text == "filtered [key]"


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (400, "REQUEST_REJECTED", False),
        (401, "PROVIDER_UNAUTHENTICATED", False),
        (403, "PROVIDER_FORBIDDEN", False),
        (404, "MODEL_NOT_FOUND", False),
        (429, "RATE_LIMITED", True),
        (500, "PROVIDER_UNAVAILABLE", True),
        (503, "PROVIDER_UNAVAILABLE", True),
    ],
)
async def test_an_error_is_asked_for_once(provider, models, status, code, retryable, streaming):
    """An error of the provider's ends the attempt at once: the package does not try again by itself."""
    provider.script(Trouble(status=status, message=f"no, {KEY}", headers={"x-request-id": "r1"}))
    failed = await failure(models, streaming=streaming)
    assert (failed.code, failed.retryable) == (code, retryable)
    assert failed.details["request_id"] == "r1"
    assert "no, [key]" in failed.message
    assert len(provider.received) == 1


async def test_a_wrong_key_is_told_by_the_name_of_its_variable(provider, models):
    """Who has to correct a key is told where it is."""
    provider.script(Trouble(status=401, message="Incorrect API key provided"))
    failed = await failure(models)
    assert failed.message == (
        f"{provider.openai_url}, asked for m, answered 401: Incorrect API key provided. "
        "Check the key in MY_KEY."
    )


async def test_how_long_to_wait_is_handed_on(provider, models):
    """What a 429 asks to wait is what the policy is told."""
    provider.script(Trouble(status=429, headers={"retry-after": "3"}))
    assert (await failure(models)).retry_after.seconds == 3


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (Raw(body=b"<html>", content_type="text/html"), "sent a reply that can't be read"),
        (Raw(body=b"{", content_type="application/json"), "sent a reply that can't be read"),
        (Raw(body=b"[1]", content_type="application/json"), "sent a reply that can't be read"),
        (Raw(body=b'{"choices": []}'), "sent a reply that can't be read"),
        (Raw(body=b'{"choices": null}'), "sent a reply that can't be read"),
    ],
    ids=["html", "half", "list", "no choice", "null"],
)
async def test_a_malformed_answer_says_what_is_wrong(provider, models, raw, words, streaming):
    """An answer that is not what the API promises is malformed, and may be better the next time."""
    provider.script(raw)
    failed = await failure(models, streaming=streaming)
    assert (failed.code, failed.category) == ("REPLY_MALFORMED", "technical")
    assert words in failed.message


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"data: {\n\n", "REPLY_MALFORMED"),
        (b"data: [1]\n\n", "REPLY_MALFORMED"),
        (b'data: {"choices": "x"}\n\n', "REPLY_MALFORMED"),
        (b'data: {"choices": [{"delta": {"content": 5}}]}\n\n', "REPLY_MALFORMED"),
        (b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n', "REPLY_MALFORMED"),
        (b"data: [DONE]\n\n", "STREAM_BROKEN"),
        (b"", "STREAM_BROKEN"),
        (b'data: {"choices": [{"delta": {"content": "x"}}]}\n\ndata: [DONE]\n\n', "STREAM_BROKEN"),
        (b'data: {"choices": [{"delta": {}, "finish_reason": "error"}]}\n\n', "STREAM_BROKEN"),
        (b'data: {"error": {"message": "overloaded", "code": 503}}\n\n', "PROVIDER_UNAVAILABLE"),
        (b'data: {"error": "overloaded"}\n\n', "STREAM_BROKEN"),
    ],
    ids=range(11),
)
async def test_a_stream_that_is_not_one_fails_clearly(provider, models, body, code):
    """Events that can't be read, an end without a reason, and an error as an event each have their code."""
    provider.script(Raw(body=body, content_type=EVENTS))
    assert (await failure(models)).code == code


async def test_a_call_without_a_name_is_malformed(provider, models):
    """A call that names no tool is no reply."""
    provider.script(calls(Call(name="")))
    failed = await failure(models)
    assert failed.code == "REPLY_MALFORMED"
    assert "call 0 names no tool" in failed.message


async def test_arguments_that_are_no_json_reach_the_server_of_runs(provider, models):
    """What a model writes as arguments is handed on: the server tells the model what is wrong with it."""
    provider.script(calls(Call(name="f", args='{"a": ')))
    response = await models.reply("m", asking(), Attempt().ctx)
    assert response.message.content[0].tool_call.args == '{"a": '


@pytest.mark.parametrize("drop_after", [1, 3])
async def test_a_stream_that_breaks_is_told_with_what_was_shown(provider, models, drop_after):
    """A connection that is lost within the reply is a broken stream, and what was shown before it was shown."""
    delivery = Delivery(piece_chars=2, drop_after=drop_after)
    provider.script(Answer(parts=(Text(text="hello"),), delivery=delivery))
    attempt = Attempt()
    failed = await failure(models, attempt)
    assert (failed.code, failed.category) == ("STREAM_BROKEN", "technical")
    assert attempt.text == ("hell" if drop_after == 3 else "")


async def test_an_error_in_the_middle_of_a_stream_ends_it(provider, models):
    """An error that is an event of the stream ends the attempt with what it says."""
    trouble = Trouble(status=500, kind="server_error", message=f"oops {KEY}")
    delivery = Delivery(piece_chars=2, trouble_after=3, trouble=trouble)
    provider.script(Answer(parts=(Text(text="hello"),), delivery=delivery))
    failed = await failure(models)
    assert failed.code == "STREAM_BROKEN"
    assert "oops [key] (server_error)" in failed.message


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_cancel_ends_the_request(provider, models, streaming):
    """Cancelled, an attempt closes its connection at once, and the provider sees it."""
    delivery = Delivery(piece_chars=2, hold_after=2 if streaming else 0)
    provider.script(Answer(parts=(Text(text="hello"),), delivery=delivery))
    asked = asyncio.create_task(models.reply("m", asking(streaming=streaming), Attempt().ctx))
    await provider.until(lambda each: bool(each.received))
    received = await provider.sent(2) if streaming else provider.received[0]
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    async with asyncio.timeout(5):
        await received.ended.wait()
    assert received.disconnected


async def test_silence_ends_an_attempt(provider):
    """A server that sends nothing for longer than it may has timed out, and the message says how long that was."""
    provider.script(Answer(parts=(Text(text="hello"),), delivery=Delivery(hold_after=2)))
    async with models_at(provider.openai_url, silence_timeout_s=0.05) as models:
        failed = await failure(models)
    assert failed.code == "PROVIDER_TIMEOUT"
    assert "sent nothing for 0.05 s" in failed.message


async def test_nobody_there_is_unreachable():
    """Where nobody listens, the failure says so."""
    listener = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    async with models_at(f"http://127.0.0.1:{port}/v1") as models:
        failed = await failure(models)
        with pytest.raises(Failed, match="can't reach"):
            await models.known_models()
    assert failed.code == "PROVIDER_UNREACHABLE"
    assert f"can't reach http://127.0.0.1:{port}/v1: " in failed.message


async def test_a_client_with_few_connections_says_so(provider):
    """Where all connections are in use for too long, the message says what to change."""
    held = Answer(parts=(Text(text="hello"),), delivery=Delivery(hold_after=1))
    provider.script(held, says("never"))
    settings = {"max_connections": 1, "connect_timeout_s": 0.05}
    async with models_at(provider.openai_url, **settings) as models:
        first = asyncio.create_task(models.reply("m", asking(), Attempt().ctx))
        await provider.sent(1)
        failed = await failure(models)
        provider.release()
        await first
    assert failed.code == "PROVIDER_UNREACHABLE"
    assert "all connections are in use" in failed.message


async def test_a_client_of_yours_is_used_as_it_is(provider):
    """A client that you made is used with its key and its address, but does not try again by itself."""
    provider.script(Trouble(status=500), says("hello"))
    async with openai.AsyncOpenAI(
        base_url=provider.openai_url, api_key=KEY, max_retries=5, timeout=None
    ) as client:
        models = OpenAIModels(client=client, models=["m"])
        assert models.address == provider.openai_url
        failed = await failure(models)
        assert failed.code == "PROVIDER_UNAVAILABLE"
        response = await models.reply("m", asking(), Attempt().ctx)
    assert response.message.content[0].text.text == "hello"


def test_models_are_hosted_by_the_names_that_graphs_use():
    """`host_on` declares each model on the executor; without models it says how to name them."""
    client = openai.AsyncOpenAI(base_url="http://127.0.0.1:1/v1", api_key=KEY)
    executor = Executor()
    OpenAIModels(client=client, models={"clever": "gpt-5", "gpt-*": ""}).host_on(executor)
    names = [each.llm.models[0] for each in executor._functions.capabilities]
    assert names == ["clever", "gpt-*"]
    with pytest.raises(ValueError, match="name at least one model"):
        OpenAIModels(client=client).host_on(executor)


def listing(answer):
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: answer))
    client = openai.AsyncOpenAI(base_url="http://h/v1", api_key=KEY, http_client=http)
    return OpenAIModels(client=client)


async def test_an_endpoint_says_which_models_it_has():
    """The names of an endpoint's list are returned."""
    listed = {"object": "list", "data": [{"id": "a"}, {"id": "b", "object": "model"}]}
    models = listing(httpx2.Response(200, json=listed))
    assert await models.known_models() == ["a", "b"]
    await models.close()


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (httpx2.Response(404, json={"detail": "Not Found"}), "MODEL_NOT_FOUND"),
        (httpx2.Response(200, json={"data": None}), "REPLY_MALFORMED"),
        (httpx2.Response(200, json=[1]), "REPLY_MALFORMED"),
        (httpx2.Response(200, text="<html>"), "REPLY_MALFORMED"),
    ],
    ids=range(4),
)
async def test_an_endpoint_without_a_list_says_why(answer, code):
    """An endpoint that has no list, or sends something else, is a failure that says so."""
    models = listing(answer)
    with pytest.raises(Failed) as caught:
        await models.known_models()
    assert caught.value.code == code
    await models.close()


async def test_the_key_is_in_no_log(provider, models, caplog):
    """Whatever is logged meanwhile, by anybody and however much, the key is not in it."""
    caplog.set_level(logging.DEBUG)
    provider.script(says("hello"), Trouble(status=401, message=f"bad {KEY}"))
    await models.reply("m", asking(), Attempt().ctx)
    await failure(models)
    assert caplog.records
    assert "canary" not in caplog.text
    assert "canary" not in repr(models) + str(vars(models))


async def test_a_key_that_changes_is_in_no_failure_either(provider):
    """A key that a function makes anew for each request is taken out of what the provider echoes."""
    keys = iter(["sk-canary-first", "sk-canary-second"])

    async def next_key():
        return next(keys)

    provider.script(
        Trouble(status=401, message="bad sk-canary-first"),
        Trouble(status=401, message="bad sk-canary-second"),
    )
    async with openai.AsyncOpenAI(base_url=provider.openai_url, api_key=next_key) as client:
        models = OpenAIModels(client=client)
        for _ in range(2):
            assert "bad [key]" in (await failure(models)).message


async def test_a_chunk_without_a_piece_is_a_sign_of_life(provider, models):
    """What a server sends while a model thinks in silence keeps the idle limit away."""
    chunks = [
        {"choices": [{"index": 0, "delta": {"role": "assistant"}}]},
        {"choices": [{"index": 0, "delta": {}}]},
        {"choices": [{"index": 0, "delta": {"content": "x"}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    body = "".join(f"data: {json.dumps(each)}\n\n" for each in chunks)
    provider.script(Raw(body=body.encode(), content_type=EVENTS))
    attempt = Attempt()
    await models.reply("m", asking(), attempt.ctx)
    assert [each is None for each in attempt.shown] == [True, True, False, True]
