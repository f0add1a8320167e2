"""Scenarios of ready-made models: what providers really send and refuse, on the way through an executor to a run and back."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import aclosing

import pytest

from stepgraph.v1.run_pb2 import RunStatus
from stepgraph_client import Graph, has_tool_calls, is_final_answer, retry
from stepgraph_client.providers.anthropic_models import AnthropicModels
from stepgraph_client.providers.endpoint import Endpoint
from stepgraph_client.providers.openai_models import OpenAIModels
from tests.support.e2e_house import happened, history, house_with_server, is_durable
from tests.support.model_stand_in import ModelStandIn
from tests.support.model_stand_in_replies import (
    Answer,
    Call,
    Delivery,
    Raw,
    Text,
    Trouble,
    calls,
    says,
)

COMPLETED = RunStatus.RUN_STATUS_COMPLETED
FAILED = RunStatus.RUN_STATUS_FAILED
CANCELLED = RunStatus.RUN_STATUS_CANCELLED
KEY = "sk-canary-0123456789"

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def house():
    async with house_with_server() as (house, _):
        yield house


@pytest.fixture
async def client(house):
    return await house.client()


@pytest.fixture
async def provider():
    async with ModelStandIn() as stand_in:
        yield stand_in


class OpenAI:
    """How chat completions are reached and read."""

    models = OpenAIModels

    @staticmethod
    def url(provider):
        return provider.openai_url

    @staticmethod
    def exchanges(request):
        """The ids of calls with their arguments, and of results with their text, as the provider was sent them."""
        made = [call for each in request["messages"] for call in each.get("tool_calls", ())]
        asked = [(call["id"], json.loads(call["function"]["arguments"])) for call in made]
        results = [each for each in request["messages"] if each["role"] == "tool"]
        return asked, [(each["tool_call_id"], each["content"]) for each in results]


class Anthropic:
    """How the messages API is reached and read."""

    models = AnthropicModels

    @staticmethod
    def url(provider):
        return provider.anthropic_url

    @staticmethod
    def exchanges(request):
        """The same, of its blocks."""
        blocks = [
            block
            for each in request["messages"]
            for block in each["content"]
            if isinstance(block, dict)
        ]
        asked = [(each["id"], each["input"]) for each in blocks if each["type"] == "tool_use"]
        results = [each for each in blocks if each["type"] == "tool_result"]
        return asked, [(each["tool_use_id"], each["content"][0]["text"]) for each in results]


@pytest.fixture(params=[OpenAI, Anthropic], ids=["openai", "anthropic"])
def protocol(request):
    return request.param


@pytest.fixture
async def hosted(house, provider, protocol):
    """An executor that hosts the model `m`, and the tool `count`."""
    endpoint = Endpoint(base_url=protocol.url(provider), api_key=KEY, key_name="MY_KEY")
    models = protocol.models.at(endpoint, models={"m": "real-m"})
    executor = house.executor("e1")
    models.host_on(executor)

    @executor.tool()
    async def count(n: int) -> str:
        """Count a call, and wait for those that are to end first."""
        await house.ledger.note(f"call {n}")
        if house.ledger.calls["backwards"]:
            await house.ledger.until(lambda ledger: sum(map(is_call, ledger.calls)) == 6)
            await house.ledger.until(
                lambda ledger: all(f"end {later}" in ledger.calls for later in range(n + 1, 6))
            )
            await house.ledger.note(f"end {n}")
        return f"result {n}"

    await house.work(executor)
    yield executor
    await models.close()


def is_call(name):
    return name.startswith("call ")


def react(**options):
    graph = Graph("react", default_model="m", **options)
    graph.llm("think", tools=True, streaming=True)
    graph.run_tools("act")
    graph.assign("done")
    graph.edge("think", "act", when=has_tool_calls())
    graph.edge("act", "think")
    graph.edge("think", "done", when=is_final_answer())
    graph.end("done")
    return graph


def saying(**options):
    policy = retry(max_tries=3, first_delay="20ms", jitter=0)
    graph = Graph("say", default_model="m", retry=policy)
    graph.llm("say", streaming=True, output="said", **options)
    graph.end("say")
    return graph


def asking(*wanted):
    """A reply that asks for the tool with (id, n); an empty id means that the provider gave none."""
    return calls(*(Call(name="count", args=f'{{"n": {n}}}', id=given) for given, n in wanted))


# ---- ids of calls ----------------------------------------------------------------------------

CASES = {
    "no ids": [[("", 0), ("", 1)]],
    "one id twice": [[("call_1", 0), ("call_1", 1)]],
    "an id of an earlier turn": [[("call_1", 0)], [("call_1", 1)]],
    "numbers that begin again": [[("1", 0), ("2", 1)], [("1", 2), ("2", 3)]],
    "null as text": [[("null", 0), ("null", 1)]],
}


@pytest.mark.parametrize("turns", CASES.values(), ids=CASES.keys())
@pytest.mark.usefixtures("hosted")
async def test_every_call_runs_once_and_its_result_goes_back_under_its_id(
    house, client, provider, protocol, turns
):
    """Whatever ids a provider gives, each call runs once, and the next request pairs each call with its own result."""
    asked = [call for turn in turns for call in turn]
    provider.script(*(asking(*turn) for turn in turns), says("done"))

    run = await client.start_run(react(), messages=["go"])
    assert (await run.wait()).status == COMPLETED

    assert house.ledger.calls == {f"call {n}": 1 for _, n in asked}
    sent, results = protocol.exchanges(provider.received[-1].json)
    assert [arguments for _, arguments in sent] == [{"n": n} for _, n in asked]
    assert [text for _, text in results] == [f"result {n}" for _, n in asked]
    assert [given for given, _ in results] == [given for given, _ in sent]
    ids = [given for given, _ in sent]
    # Some libraries write the absence of an id as the text "null"; that is no id.
    given_ids = [given for given, _ in asked if given not in {"", "null"}]
    if protocol is OpenAI and given_ids:
        assert ids == given_ids
    else:
        # Of those that the server made none is twice; nor is any at Anthropic, which refuses a second call of one id.
        assert len(set(ids)) == len(asked)


@pytest.mark.usefixtures("hosted")
async def test_results_that_come_in_reverse_order_go_back_in_the_order_of_the_calls(
    house, client, provider, protocol
):
    """Six parallel calls whose results come back last one first are answered in the order in which they were asked."""
    await house.ledger.note("backwards")
    provider.script(asking(*((f"c{n}", n) for n in range(6))), says("done"))

    run = await client.start_run(react(), messages=["go"])
    assert (await run.wait()).status == COMPLETED

    ends = [name for name in house.ledger.calls if name.startswith("end ")]
    assert ends == [f"end {n}" for n in reversed(range(6))]
    sent, results = protocol.exchanges(provider.received[-1].json)
    assert [given for given, _ in sent] == [f"c{n}" for n in range(6)]
    assert results == [(f"c{n}", f"result {n}") for n in range(6)]


@pytest.mark.usefixtures("hosted")
async def test_arguments_that_are_no_json_are_told_to_the_model(client, provider, protocol):
    """A model that writes no JSON is told so by the result of its call, and what it wrote goes back as JSON."""
    provider.script(calls(Call(name="count", args='{"n": ', id="c1")), says("sorry"))

    run = await client.start_run(react(), messages=["go"])
    assert (await run.wait()).status == COMPLETED

    sent, results = protocol.exchanges(provider.received[-1].json)
    assert sent == [("c1", {"unreadable_arguments": '{"n": '})]
    assert "not JSON" in results[0][1]


# ---- a stream that breaks --------------------------------------------------------------------

FIRST = "".join(f"a{n:02} " for n in range(20))
SECOND = "".join(f"b{n:02} " for n in range(20))


async def shown_by(run):
    """What a watcher has of each attempt who forgets what it is told to, and in which order things came."""
    shown, order = {}, []
    async with asyncio.timeout(30), aclosing(run.events()) as events:
        async for event in events:
            if is_durable(event):
                continue
            kind = event.WhichOneof("kind")
            order.append((kind, event.attempt))
            text = event.progress.text.text + event.text_so_far.text
            args = event.progress.tool_args.args
            shown[event.attempt] = shown.get(event.attempt, "") + text + args
            if kind == "attempt_discarded":
                shown[event.attempt] = ""
    return shown, order


@pytest.mark.usefixtures("hosted")
async def test_a_stream_that_breaks_is_forgotten_before_the_next_one_is_shown(client, provider):
    """After a lost connection the second attempt is shown alone, is what is kept, and is all that a replay shows."""
    broken = Delivery(hold_after=13, drop_after=14)
    provider.script(Answer(parts=(Text(text=FIRST),), delivery=broken), says(SECOND))
    run = await client.start_run(saying(), messages=["go"])
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(shown_by(run))
        # Whoever sees nothing of the first attempt has nothing to forget.
        await provider.sent(13)
        await progress_of(run)
        provider.release()
    shown, order = watching.result()

    assert shown == {1: "", 2: SECOND}
    assert ("attempt_discarded", 1) in order
    assert max(place for place, (_, attempt) in enumerate(order) if attempt == 1) < min(
        place for place, (_, attempt) in enumerate(order) if attempt == 2
    )
    state = await run.state()
    assert state.variables["said"] == SECOND
    everything = b"".join(e.SerializeToString() for e in await history(client, run.run_id))
    assert b"a00" not in everything
    assert len(provider.received) == 2


async def progress_of(run):
    """Return once something of the run's current attempt was shown to a watcher."""
    async with asyncio.timeout(30), aclosing(run.events()) as events:
        async for event in events:
            if not is_durable(event):
                return


@pytest.mark.usefixtures("hosted")
async def test_half_arguments_are_not_glued_to_the_next_ones(house, client, provider):
    """A call whose arguments broke off in the middle is asked for anew, and runs once with the new ones."""
    half = Delivery(drop_after=4, piece_chars=3)
    provider.script(
        Answer(parts=(Call(name="count", args='{"n": 111111}', id="x"),), delivery=half),
        asking(("y", 2)),
        says("done"),
    )
    policy = retry(max_tries=3, first_delay="20ms", jitter=0)
    run = await client.start_run(react(retry=policy), messages=["go"])
    assert (await run.wait()).status == COMPLETED
    assert house.ledger.calls == {"call 2": 1}


async def test_what_a_broken_stream_is_known_to_have_cost_is_counted(house, client, provider):
    """Where a server tells the usage with each piece, a stream that breaks has cost what it said last."""
    endpoint = Endpoint(base_url=provider.openai_url, api_key=KEY)
    models = OpenAIModels.at(endpoint, models=["m"])
    executor = house.executor("e1")
    models.host_on(executor)
    await house.work(executor)
    chunk = {
        "choices": [{"index": 0, "delta": {"content": "a"}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 12},
    }
    cut = Raw(body=f"data: {json.dumps(chunk)}\n\n".encode(), content_type="text/event-stream")
    provider.script(cut, Answer(parts=(Text(text="b"),), input_tokens=100, output_tokens=20))

    row = await (await client.start_run(saying(), messages=["go"])).wait()
    await models.close()

    assert row.status == COMPLETED
    assert (row.usage.input_tokens, row.usage.output_tokens) == (200, 32)


# ---- troubles --------------------------------------------------------------------------------


@pytest.mark.usefixtures("hosted")
async def test_a_rate_limit_is_waited_out_as_long_as_the_provider_says(client, provider):
    """After a 429 the next try comes when the provider said, not when the policy would have."""
    provider.script(Trouble(status=429, headers={"retry-after-ms": "300"}), says("fine"))
    run = await client.start_run(saying(), messages=["go"])
    assert (await run.wait()).status == COMPLETED
    (failed,) = [e for e in await history(client, run.run_id) if e.HasField("task_failed")]
    wait = failed.task_failed.retry_time.ToDatetime() - failed.time.ToDatetime()
    assert failed.task_failed.failure.code == "RATE_LIMITED"
    assert round(wait.total_seconds(), 2) == pytest.approx(0.3, abs=0.02)


@pytest.mark.usefixtures("hosted")
async def test_a_wrong_key_ends_the_run_at_once_and_is_nowhere_to_be_read(client, provider, caplog):
    """A refused key is not tried again; it is in no event and no log, even if the provider echoes it."""
    caplog.set_level(logging.DEBUG)
    provider.script(Trouble(status=401, message=f"Incorrect API key: {KEY}"))
    run = await client.start_run(saying(), messages=["go"])
    row = await run.wait()
    assert (row.status, row.failure.code) == (FAILED, "PROVIDER_UNAUTHENTICATED")
    assert "Check the key in MY_KEY." in row.failure.message
    assert len(provider.received) == 1
    events = await history(client, run.run_id)
    assert "canary" not in str(events) + caplog.text


@pytest.mark.parametrize(
    ("openai_stop", "anthropic_stop", "code"),
    [("content_filter", "refusal", "REPLY_REFUSED"), ("length", "max_tokens", "REPLY_CUT_OFF")],
    ids=["refused", "cut off"],
)
@pytest.mark.usefixtures("hosted")
async def test_a_refusal_and_a_cut_off_reply_are_what_the_graph_makes_of_them(
    client, provider, protocol, openai_stop, anthropic_stop, code
):
    """A reply that was refused or cut off ends the task with its code, its cost counts, and it is not tried again."""
    stop = openai_stop if protocol is OpenAI else anthropic_stop
    provider.script(Answer(parts=(Text(text="half"),), stop=stop, output_tokens=9))
    row = await (await client.start_run(saying(), messages=["go"])).wait()
    assert (row.status, row.failure.code) == (FAILED, code)
    assert row.usage.output_tokens == 9
    assert len(provider.received) == 1


@pytest.mark.usefixtures("hosted")
async def test_a_cancelled_run_closes_the_connection_to_the_provider(client, provider):
    """A run that is cancelled in mid-stream ends the HTTP request, and what was shown is kept as partial."""
    provider.script(Answer(parts=(Text(text="hello there"),), delivery=Delivery(hold_after=4)))
    run = await client.start_run(saying(), messages=["go"])
    received = await provider.sent(4)
    await progress_of(run)
    await run.cancel()
    assert (await run.wait()).status == CANCELLED
    async with asyncio.timeout(10):
        await received.ended.wait()
    assert received.disconnected
    await happened(client, run.run_id, "run_cancelled")
