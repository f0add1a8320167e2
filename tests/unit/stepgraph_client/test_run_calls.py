from __future__ import annotations

import asyncio

import pytest

from stepgraph.v1.conversation_pb2 import Message
from stepgraph.v1.event_pb2 import RunPaused
from stepgraph.v1.failure_pb2 import Failure
from stepgraph.v1.run_pb2 import RunStatus
from stepgraph.v1.run_service_pb2 import ActivationState, GetRunStateResponse, WatchRunsResponse
from stepgraph.v1.state_pb2 import GraphState
from stepgraph.v1.value_pb2 import Value
from stepgraph_client.calls import Patience
from stepgraph_client.client import Client
from stepgraph_client.errors import AlreadyExists, RunCancelled, RunFailed, Unreachable
from stepgraph_client.graphs import Graph
from tests.support.fake_server import LOST, Refusal, run_event


async def test_a_run_is_started_and_gives_its_result(client, server) -> None:
    run = await client.start_run(
        "react", input={"n": 9007199254740993}, variables={"a": "b"}, labels={"x": "y"}
    )
    assert run.run_id == "run-1"
    assert await run.result() == "done"
    (request,) = server.requests["StartRun"]
    assert request.input.value.json == '{"n":9007199254740993}'
    assert request.input.variables["a"].text == "b"
    assert (request.namespace, request.graph.reference) == ("default", "react")


async def test_a_builder_is_sent_along(client, server) -> None:
    g = Graph("mine")
    g.assign("a")
    await client.start_run(g)
    assert server.requests["StartRun"][0].graph.definition.name == "mine"


async def test_a_start_whose_answer_was_lost_is_one_run(client, server) -> None:
    server.refuse("StartRun", LOST, Refusal(code=LOST.code, late=True))
    run = await client.start_run("react")
    assert run.run_id == "run-1"
    assert list(server.runs) == ["run-1"]
    ids = {each.request_id for each in server.requests["StartRun"]}
    assert len(server.requests["StartRun"]) == 3
    assert len(ids) == 1
    assert ids != {""}


async def test_two_starts_are_two_runs(client, server) -> None:
    await client.start_run("react")
    await client.start_run("react")
    assert len(server.runs) == 2


async def test_a_request_id_of_ones_own_makes_many_starts_one_run(client, server) -> None:
    runs = await asyncio.gather(*(client.start_run("react", request_id="mine") for _ in range(10)))
    assert {run.run_id for run in runs} == {"run-1"}


async def test_an_id_that_is_taken_is_refused(client, server) -> None:
    server.add_run("r")
    with pytest.raises(AlreadyExists) as caught:
        await client.start_run("react", run_id="r")
    assert caught.value.metadata == {"run_id": "r"}


async def test_a_server_that_is_away_is_told(server) -> None:
    async with Client("127.0.0.1:1", patience=Patience(max_tries=2, first_delay_s=0.001)) as away:
        with pytest.raises(Unreachable, match="after 2 tries"):
            await away.start_run("react")


async def test_waiting_goes_on_until_the_run_is_over(client, server) -> None:
    run = server.add_run("r", run_event(run_paused=RunPaused()))
    handle = await client.run("r")
    asyncio.get_running_loop().call_later(0.05, run.complete, "late")
    assert await handle.result() == "late"
    assert handle.run.status == RunStatus.RUN_STATUS_COMPLETED


async def test_a_run_that_went_wrong_raises_where_its_result_is_asked_for(client, server) -> None:
    failed = run_event()
    failed.run_failed.failure.CopyFrom(Failure(code="BAD", message="it broke"))
    server.add_run("f", failed)
    cancelled = run_event()
    cancelled.run_cancelled.failure.CopyFrom(Failure(code="CANCELLED"))
    server.add_run("c", cancelled)
    with pytest.raises(RunFailed, match="BAD: it broke") as caught:
        await (await client.run("f")).result()
    assert caught.value.failure.code == "BAD"
    with pytest.raises(RunCancelled):
        await (await client.run("c")).result()
    assert (await (await client.run("c")).wait()).run_id == "c"


async def test_a_run_without_an_output_gives_none(client, server) -> None:
    server.add_run("r").complete()
    assert await (await client.run("r")).result() is None


async def test_a_handle_watches_reads_and_cancels_its_run(client, server) -> None:
    run = server.add_run("r", run_event(run_paused=RunPaused()))
    handle = await client.run("r")
    assert (await handle.cancel("enough")).status == RunStatus.RUN_STATUS_STOPPING
    assert server.requests["CancelRun"][0].reason == "enough"
    run.complete()
    assert [event.sequence async for event in handle.events(1)] == [2]
    assert (await handle.state()).sequence == 0


async def test_the_pages_of_a_state_are_joined(client, server) -> None:
    first = GetRunStateResponse(sequence=9, activations=[ActivationState(node_id="a")])
    first.state.variables["a"].text = "1"
    first.state.conversation.messages.append(Message(role=1))
    first.result.completed = True
    second = GetRunStateResponse(state=GraphState())
    second.state.variables["b"].json = "[2]"
    second.state.conversation.messages.append(Message(role=2))
    server.states["r"] = [first, second]
    state = await client.state("r", 9)
    assert (state.sequence, state.variables) == (9, {"a": "1", "b": [2]})
    assert [each.role for each in state.state.conversation.messages] == [1, 2]
    assert state.activations[0].node_id == "a"
    assert state.result is not None
    assert server.requests["GetRunState"][1].sequence == 9


async def test_runs_are_steered_by_calls_that_are_safe_to_repeat(client, server) -> None:
    server.add_run("r")
    for method in (
        "CancelRun",
        "PauseRun",
        "UnpauseRun",
        "SignalRun",
        "ForkRun",
        "RetryRun",
        "DeleteRun",
    ):
        server.refuse(method, LOST)
    await client.cancel("r")
    await client.pause("r", "lunch")
    await client.unpause("r")
    await client.signal("r", "go", {"n": 1}, correlation="c")
    assert (await client.fork("r", sequence=1)).run_id == "r-fork"
    assert (await client.retry("r", "again")).run_id == "again"
    assert (await client.explain("r")).waits[0].task_id == "1/think"
    await client.delete("r")
    for method in (
        "CancelRun",
        "PauseRun",
        "UnpauseRun",
        "SignalRun",
        "ForkRun",
        "RetryRun",
        "DeleteRun",
    ):
        ids = [each.request_id for each in server.requests[method]]
        assert len(ids) == 2
        assert len(set(ids)) == 1
        assert ids[0]
    assert server.requests["SignalRun"][0].payload == Value(json='{"n":1}')


async def test_a_signal_may_carry_nothing(client, server) -> None:
    server.add_run("r")
    await client.signal("r", "go")
    assert not server.requests["SignalRun"][0].HasField("payload")


async def test_lists_are_filtered_by_status(client, server) -> None:
    server.add_run("a")
    server.add_run("b", status=RunStatus.RUN_STATUS_PAUSED)
    assert [run.run_id async for run in client.list_runs(statuses=["paused"])] == ["b"]


async def test_a_refusal_says_what_the_server_said(client) -> None:
    with pytest.raises(Exception, match="RUN_NOT_FOUND: there is no run nope"):
        await client.run("nope")


async def test_where_a_watch_would_begin_is_asked_with_its_filter(client, server) -> None:
    """A token is good for the request that gave it, so the filter is that of the watch."""
    server.news = [WatchRunsResponse(), WatchRunsResponse()]
    assert await client.watch_position(labels={"a": "b"}) == "1"
    assert [each.run_id async for each in client.watch_runs(resume_token="1")] == []
    first, second = server.requests["WatchRuns"]
    assert (dict(first.filter.labels), second.resume_token) == ({"a": "b"}, "1")
    assert first.view == second.view
    server.news = []
    assert await client.watch_position() == ""
