"""Runs whose model calls are answered by a real model, over two protocols: what comes, when, what it costs and how it ends.

The model is small and its words mean nothing, so nothing here is about words.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import pytest

from stepgraph.v1.run_pb2 import RunStatus
from stepgraph_client import Graph, limits, retry
from tests.support.e2e_house import history, is_durable
from tests.support.e2e_processes import free_port
from tests.support.model_processes import CONTEXT_TOKENS, SLOTS, ModelExecutorProcess

# A machine under load writes five tokens a second, and most tests want some fifty.
pytestmark = [
    pytest.mark.model,
    pytest.mark.timeout(120),
    pytest.mark.asyncio(loop_scope="session"),
]

COMPLETED = RunStatus.RUN_STATUS_COMPLETED
FAILED = RunStatus.RUN_STATUS_FAILED
CANCELLED = RunStatus.RUN_STATUS_CANCELLED
#: Any of these ends a reply; no text goes on without them for long.
STOPS = [".", ",", "!", "?", ":", "\n"]
STOP_OPTION = {"openai": "stop", "anthropic": "stop_sequences"}
ONE_TRY = retry(max_tries=1)


def writing(model, **options):
    """Build a graph of one node, which lets the model write."""
    graph = Graph(f"write-{model}", default_model=model, retry=ONE_TRY)
    given = {"streaming": True, "max_tokens": 64, "temperature": 0.0, **options}
    graph.llm("write", limits=limits(idle="60s", run="100s"), **given)
    graph.end("write")
    return graph


def stopping(protocol):
    """Return the option that ends a reply at the first mark."""
    return {STOP_OPTION[protocol]: STOPS}


async def start(client, graph, text="Once upon a time there was a"):
    return await client.start_run(graph, messages=[text])


async def watched(client, run, on_delta=None):
    """Watch a run to its end; return the pieces of text that came."""
    pieces = []
    async with aclosing(client.watch(run.run_id)) as events:
        async for event in events:
            if not is_durable(event) and event.progress.HasField("text"):
                pieces.append(event.progress.text.text)
                if on_delta is not None:
                    await on_delta(pieces)
    return pieces


async def last(client, run, kind):
    """Return the last event of a kind."""
    found = [getattr(event, kind) for event in await history(client, run.run_id)
             if event.WhichOneof("kind") == kind]  # fmt: skip
    assert found, f"there is no {kind}"
    return found[-1]


async def test_a_reply_comes_while_it_is_written_and_its_pieces_are_the_message(
    client, model, slots
):
    """Pieces come while the model is at work, and together they are the message that the run keeps."""
    busy_at_first = []

    async def look(pieces):
        if len(pieces) == 1:
            busy_at_first.append(any(await slots()))

    run = await start(client, writing(model, max_tokens=48))
    pieces = await watched(client, run, look)
    assert busy_at_first == [True], "the first piece came when the model had finished"
    assert len(pieces) >= 12

    ended = await start(client, writing(model, provider_options=stopping(model)))
    pieces = await watched(client, ended)
    completed = (await last(client, ended, "task_completed")).result.llm
    assert "".join(pieces) == completed.message.content[0].text.text
    assert (await ended.wait()).status == COMPLETED


async def test_what_a_reply_costs_is_what_the_model_counted(client, model):
    """The tokens of a reply are those of the model server, in the event and in the sum of the run."""
    run = await start(client, writing(model, provider_options=stopping(model)))
    ended = await run.wait()
    usage = (await last(client, run, "task_completed")).result.llm.usage
    assert usage.input_tokens >= 8
    assert 1 <= usage.output_tokens < 64
    assert usage.cached_input_tokens <= usage.input_tokens
    assert ended.usage == usage


async def test_a_reply_without_deltas_is_the_same(client, model):
    """Where no deltas are wanted none come, and the reply is as whole as otherwise."""
    graph = writing(model, streaming=False, provider_options=stopping(model))
    run = await start(client, graph)
    assert await watched(client, run) == []
    completed = (await last(client, run, "task_completed")).result.llm
    assert completed.message.content[0].text.text
    assert completed.usage.output_tokens >= 1


async def test_a_reply_that_is_cut_off_is_a_failure_that_has_cost_something(client, model):
    """A reply that ends at max_tokens fails with REPLY_CUT_OFF; its pieces were shown, and its tokens count."""
    run = await start(client, writing(model, max_tokens=12))
    pieces = await watched(client, run)
    ended = await run.wait()
    assert (ended.status, ended.failure.code) == (FAILED, "REPLY_CUT_OFF")
    assert pieces
    failed = await last(client, run, "task_failed")
    assert failed.usage.output_tokens == 12
    assert ended.usage.output_tokens == 12


async def test_a_cancel_in_the_middle_stops_the_model(client, model, slots):
    """A run that is cancelled while the model writes frees the model soon, long before it would have finished."""

    async def cancel(pieces):
        if len(pieces) == 3:
            assert any(await slots())
            await client.cancel(run.run_id, "enough")

    run = await start(client, writing(model, max_tokens=CONTEXT_TOKENS // SLOTS - 100))
    pieces = await watched(client, run, cancel)
    assert (await run.wait()).status == CANCELLED
    assert len(pieces) < 500
    async with asyncio.timeout(10):
        while any(await slots()):  # noqa: ASYNC110  # nothing tells of the slots of another program
            await asyncio.sleep(0.05)


async def test_two_replies_are_written_at_once(client, model):
    """Two runs are served side by side: each has its first piece before the other has its last."""
    order = []
    runs = [await start(client, writing(model, max_tokens=40)) for _ in range(2)]

    async def follow(run):
        async def note(_):
            order.append(run.run_id)

        await watched(client, run, note)

    async with asyncio.TaskGroup() as group:
        for run in runs:
            group.create_task(follow(run))
    first, second = (run.run_id for run in runs)
    ends = {run_id: len(order) - order[::-1].index(run_id) for run_id in (first, second)}
    assert order.index(first) < ends[second]
    assert order.index(second) < ends[first]


async def test_more_calls_than_the_model_has_room_for_all_end(client, model):
    """A third call waits at the model server for its turn, and all are answered."""
    runs = [await start(client, writing(model, max_tokens=8)) for _ in range(SLOTS + 2)]
    ended = await asyncio.gather(*(run.wait() for run in runs))
    assert {each.failure.code for each in ended} == {"REPLY_CUT_OFF"}
    assert {each.usage.output_tokens for each in ended} == {8}


async def test_a_request_that_is_too_long_is_not_tried_again(client, model):
    """More than the model can read is a failure of its own, which no further try would mend."""
    graph = writing(model, retry=retry(max_tries=3))
    run = await start(client, graph, "word " * CONTEXT_TOKENS)
    ended = await run.wait()
    assert (ended.status, ended.failure.code) == (FAILED, "REQUEST_TOO_LARGE")
    assert (await last(client, run, "task_failed")).tries == 1


async def test_an_answer_by_a_schema_is_one(client, executors):
    """The model writes what the schema wants, and its fields are variables of the run."""
    schema = {
        "type": "object",
        "properties": {"color": {"enum": ["red", "blue"]}, "sure": {"type": "boolean"}},
        "required": ["color", "sure"],
        "additionalProperties": False,
    }
    run = await start(client, writing("openai", output_schema=schema, max_tokens=200))
    assert (await run.wait()).status == COMPLETED
    variables = (await run.state()).state.variables
    assert variables["color"].text in {"red", "blue"}
    assert json.loads(variables["sure"].json) in {True, False}


async def test_a_wrong_address_of_the_api_is_a_failure_that_names_it(
    client, server, model_server, model
):
    """An address without the API, and one without a server, each fail with their code and the address."""
    lost = f"lost-{model}"
    async with ModelExecutorProcess(server.address, model, f"{model_server.url}/lost", lost):
        ended = await (await start(client, writing(lost))).wait()
        assert ended.failure.code == "MODEL_NOT_FOUND"
        assert f"{model_server.url}/lost" in ended.failure.message
    nobody, gone = f"http://127.0.0.1:{free_port()}", f"gone-{model}"
    async with ModelExecutorProcess(server.address, model, nobody, gone):
        ended = await (await start(client, writing(gone))).wait()
        assert ended.failure.code == "PROVIDER_UNREACHABLE"
        assert nobody in ended.failure.message


async def test_a_model_that_nobody_hosts_is_waited_for_and_then_given_up(client, executors):
    """A model of another name is asked for in vain: the task waits for an executor, as long as it may."""
    graph = Graph("nobody", default_model="nobody-hosts-this")
    graph.llm("write", limits=limits(queue="200ms"))
    graph.end("write")
    ended = await (await start(client, graph)).wait()
    assert (ended.status, ended.failure.code) == (FAILED, "QUEUE_LIMIT")
