"""Scenarios of models and tools: ids of calls in every odd form, and streams that break and are tried again."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from stepgraph.v1.conversation_pb2 import ContentBlock, Message, ToolCallBlock
from stepgraph.v1.llm_pb2 import LlmResponse, Usage
from stepgraph.v1.run_pb2 import RunStatus
from stepgraph_client import Failed, Graph, TaskContext, has_tool_calls, is_final_answer, retry
from stepgraph_testing import Workbench
from tests.support.e2e_house import history, house_with_server, is_durable

COMPLETED = RunStatus.RUN_STATUS_COMPLETED


@pytest.fixture
async def house():
    async with house_with_server() as (house, _):
        yield house


@pytest.fixture
async def client(house):
    return await house.client()


# ---- ids of calls ----------------------------------------------------------------------------


def react():
    graph = Graph("react", default_model="m")
    graph.llm("think", tools=True)
    graph.run_tools("act")
    graph.assign("done")
    graph.edge("think", "act", when=has_tool_calls())
    graph.edge("act", "think")
    graph.edge("think", "done", when=is_final_answer())
    graph.end("done")
    return graph


def asking(*calls):
    """Return a reply that asks for the tool with (id, n), id None meaning that none is given."""
    blocks = [
        ContentBlock(tool_call=ToolCallBlock(id=given or "", name="count", args=f'{{"n":{n}}}'))
        for given, n in calls
    ]
    return LlmResponse(message=Message(role="ROLE_ASSISTANT", content=blocks))


async def converse(bench, turns, *, latest_first=False):
    """Run a model that says these turns and then is done; return the run, what the model was shown, and which call ended when."""
    ended = []
    model = bench.model("m", replies=[*turns, "done"])

    @bench.tool
    async def count(n: int) -> str:
        if latest_first:
            await bench.sleep(f"{10 - n}s")
        ended.append(n)
        return f"result {n}"

    run = await bench.start(react(), messages=["go"])
    assert await run.result() == "done"
    return run, model.asked, ended


def exchanges(request):
    """Return the calls and the results that a model is shown, in order."""
    blocks = [block for message in request.messages for block in message.content]
    calls = [block.tool_call for block in blocks if block.HasField("tool_call")]
    results = [block.tool_result for block in blocks if block.HasField("tool_result")]
    return calls, results


def texts(results):
    return [block.text.text for result in results for block in result.content]


CASES = {
    "no ids": [[(None, 0), (None, 1)]],
    "one id twice": [[("call_1", 0), ("call_1", 1)]],
    "an id of an earlier turn": [[("call_1", 0)], [("call_1", 1)]],
    "numbers that begin again": [[("1", 0), ("2", 1)], [("1", 2), ("2", 3)]],
    "null as text": [[("null", 0), ("null", 1)]],
}


@pytest.mark.parametrize("turns", CASES.values(), ids=CASES.keys())
async def test_every_call_runs_once_under_an_id_of_its_own_and_the_provider_s_is_echoed(
    workbench, turns
):
    asked = [call for turn in turns for call in turn]

    run, shown, ended = await converse(workbench, [asking(*turn) for turn in turns])

    calls, results = exchanges(shown[-1])
    # Some libraries write the absence of an id as the text "null"; that is no id.
    ids = ["" if given in {None, "null"} else given for given, _ in asked]
    assert sorted(ended) == [n for _, n in asked]
    assert len({call.id for call in calls}) == len(asked)
    assert [call.provider_id for call in calls] == ids
    assert [result.call_id for result in results] == [call.id for call in calls]
    assert [result.provider_id for result in results] == ids
    assert texts(results) == [f"result {n}" for _, n in asked]
    assert run.attempts("tool count") == [1] * len(asked)


async def test_results_that_come_in_reverse_order_are_shown_in_the_order_of_the_calls(workbench):
    turn = asking(*((f"c{n}", n) for n in range(6)))

    _, shown, ended = await converse(workbench, [turn], latest_first=True)

    calls, results = exchanges(shown[-1])
    assert [result.call_id for result in results] == [call.id for call in calls]
    assert texts(results) == [f"result {n}" for n in range(6)]
    assert ended == list(reversed(range(6)))


async def test_ids_that_the_server_made_are_the_same_after_a_restart(tmp_path):
    data = tmp_path / "runs.db"
    async with Workbench(data=data) as bench:
        run, shown, _ = await converse(bench, [asking((None, 0), (None, 1))])
        before, _ = exchanges(shown[-1])
    async with Workbench(data=data) as bench:
        state = (await bench.client.state(run.run_id)).state
    after, _ = exchanges(state.conversation)

    assert [call.id for call in after] == [call.id for call in before]


# ---- a stream that breaks --------------------------------------------------------------------

FIRST = [f"a{n} " for n in range(20)]
SECOND = [f"b{n} " for n in range(20)]


async def breaking(house, *, gate=None, watched=None):
    """Work as a model whose first stream breaks after 12 pieces; the second waits in its middle if there is a gate.

    The first one breaks once it is `watched`, if that is given.
    """
    executor = house.executor("e1")

    @executor.model("m")
    async def model(request, ctx: TaskContext) -> object:
        attempt = await house.ledger.note("model")
        for place, piece in enumerate(FIRST if attempt == 1 else SECOND):
            await ctx.progress_text(piece)
            if attempt == 1 and place == 11:
                ctx.tool_args_delta(0, '{"quer', tool_name="search")
                if watched is not None:
                    await watched.wait()
                raise Failed(
                    "PROVIDER_UNAVAILABLE",
                    "the stream broke",
                    category="technical",
                    usage=Usage(input_tokens=100, output_tokens=12),
                )
            if attempt == 2 and place == 9 and gate is not None:
                await house.ledger.note("half")
                await gate.wait()
        message = Message(content=[ContentBlock(text={"text": "".join(SECOND)})])
        message.role = 3
        return LlmResponse(message=message, usage=Usage(input_tokens=100, output_tokens=20))

    await house.work(executor)


def streaming():
    graph = Graph(
        "stream", default_model="m", retry=retry(max_tries=3, first_delay="20ms", jitter=0)
    )
    graph.llm("say", streaming=True, output="said")
    graph.end("say")
    return graph


async def test_an_attempt_that_broke_is_discarded_before_the_next_one_shows_anything(house, client):
    watched = asyncio.Event()
    await breaking(house, watched=watched)
    run = await client.start_run(streaming(), messages=["go"])

    seen = []
    async with asyncio.timeout(20), aclosing(run.events()) as events:
        async for event in events:
            seen.append(event)
            if not is_durable(event):
                # Whoever sees nothing of the first attempt has nothing to forget.
                watched.set()

    transient = [event for event in seen if not is_durable(event)]
    shown = {1: "", 2: ""}
    order = []
    for event in transient:
        kind = event.WhichOneof("kind")
        order.append((kind, event.attempt))
        if kind == "progress" and event.progress.HasField("text"):
            shown[event.attempt] += event.progress.text.text
        elif kind == "text_so_far":
            shown[event.attempt] += event.text_so_far.text
        elif kind == "attempt_discarded":
            shown[event.attempt] = ""
    assert ("attempt_discarded", 1) in order, "a watcher is told to forget what it saw"
    assert max(place for place, (_, attempt) in enumerate(order) if attempt == 1) < min(
        place for place, (_, attempt) in enumerate(order) if attempt == 2
    )
    assert shown == {1: "", 2: "".join(SECOND)}
    indexes = [e.progress.index for e in transient if e.attempt == 2 and e.HasField("progress")]
    assert indexes == sorted(set(indexes))


async def test_what_is_kept_of_a_broken_stream_is_the_second_attempt_alone_and_its_cost(
    house, client
):
    await breaking(house)
    run = await client.start_run(streaming(), messages=["go"])
    row = await run.wait()

    state = await run.state()
    replayed = await history(client, run.run_id)
    everything = b"".join(event.SerializeToString() for event in replayed)
    assert state.variables["said"] == "".join(SECOND)
    assert state.state.conversation.messages[-1].content[0].text.text == "".join(SECOND)
    assert (row.usage.input_tokens, row.usage.output_tokens) == (200, 32)
    assert b"a0 " not in everything, "a replay shows nothing of the first attempt"
    assert house.ledger.calls["model"] == 2


async def test_who_comes_late_gets_the_text_of_the_current_attempt_so_far(house, client):
    gate = asyncio.Event()
    await breaking(house, gate=gate)
    run = await client.start_run(streaming(), messages=["go"])
    await house.ledger.called("half")

    text = ""
    async with asyncio.timeout(20), aclosing(run.events()) as events:
        async for event in events:
            if is_durable(event):
                continue
            assert event.attempt == 2
            text += event.text_so_far.text + event.progress.text.text
            gate.set()

    assert text == "".join(SECOND)
