"""Runs are started, read, listed, watched and cancelled."""

from __future__ import annotations

import pytest

from stepgraph.v1 import conversation_pb2, run_pb2
from stepgraph.v1 import run_service_pb2 as pb
from stepgraph_server.api.changes import Changes
from stepgraph_server.api.run_service import RunService, query_of
from stepgraph_server.core.inputs import Pause, Signal, Unpause
from stepgraph_server.storage.records import RunKey
from stepgraph_server.storage.runs import RunQuery
from tests.support.standins import StateStandIn

RUN = RunKey("default", "r1")


@pytest.fixture
async def service(store, engine, pages):
    async with Changes(10) as changes:
        yield RunService(
            runs=store.runs,
            values=store.values,
            engine=engine,
            watcher=engine,
            changes=changes,
            pages=pages,
        )


async def test_a_run_is_started_and_read(service, context):
    request = pb.StartRunRequest(run_id="r1", graph={"reference": "g"})

    started = (await service.StartRun(request, context)).run
    read = (await service.GetRun(pb.GetRunRequest(run_id="r1"), context)).run

    assert started == read
    assert read.status == run_pb2.RUN_STATUS_RUNNING


async def test_a_run_that_is_not_there_is_not_found(service, context, reason_of):
    call = service.GetRun(pb.GetRunRequest(run_id="r1"), context)

    assert await reason_of(call) == "RUN_NOT_FOUND"


async def test_a_run_is_cancelled(service, engine, context):
    await engine.create(RUN)

    run = (await service.CancelRun(pb.CancelRunRequest(run_id="r1"), context)).run

    assert run.status == run_pb2.RUN_STATUS_CANCELLED


async def test_a_run_is_paused_and_unpaused(service, engine, context):
    await engine.create(RUN)

    await service.PauseRun(pb.PauseRunRequest(run_id="r1", reason="wait"), context)
    run = (await service.UnpauseRun(pb.UnpauseRunRequest(run_id="r1"), context)).run

    assert engine.changes == [Pause(reason="wait"), Unpause()]
    assert run.run_id == "r1"


async def test_a_signal_is_sent_with_or_without_a_payload(service, engine, context):
    await engine.create(RUN)

    await service.SignalRun(pb.SignalRunRequest(run_id="r1", name="go"), context)
    paid = pb.SignalRunRequest(run_id="r1", name="paid", correlation="o", payload={"text": "5"})
    await service.SignalRun(paid, context)

    assert engine.changes == [
        Signal(name="go"),
        Signal(name="paid", correlation="o", payload=paid.payload),
    ]


async def test_a_run_is_forked_and_retried(service, engine, context):
    await engine.create(RUN)
    fork = pb.ForkRunRequest(run_id="r1", new_run_id="f1")
    again = pb.RetryRunRequest(run_id="r1", new_run_id="f2")

    forked = (await service.ForkRun(fork, context)).run
    retried = (await service.RetryRun(again, context)).run

    assert engine.forks == [fork, again]
    assert (forked.run_id, retried.run_id) == ("f1", "f2")


async def test_a_run_is_explained_as_far_as_a_response_has_room(service, engine, context):
    await engine.create(RUN)
    engine.waits = [pb.Wait(task_id=str(number), description="x" * 900_000) for number in range(9)]

    response = await service.ExplainRun(pb.ExplainRunRequest(run_id="r1"), context)

    assert response.run.run_id == "r1"
    assert [wait.task_id for wait in response.waits] == ["0", "1"]


async def test_runs_are_listed_newest_first_in_pages(service, engine, context):
    for number in range(3):
        await engine.create(RunKey("default", f"r{number}"), {"n": str(number)})

    first = await service.ListRuns(pb.ListRunsRequest(), context)
    second = await service.ListRuns(pb.ListRunsRequest(page_token=first.next_page_token), context)
    labelled = await service.ListRuns(pb.ListRunsRequest(filter={"labels": {"n": "1"}}), context)

    assert [run.run_id for run in first.runs] == ["r2", "r1"]
    assert [run.run_id for run in second.runs] == ["r0"]
    assert not second.next_page_token
    assert [run.run_id for run in labelled.runs] == ["r1"]


async def test_a_run_is_watched_from_a_sequence_to_its_end(service, engine, context):
    await engine.create(RUN)
    await engine.go_on(RUN, 2)
    await engine.end(RUN)
    request = pb.WatchRunRequest(run_id="r1", after_sequence=1)

    responses = [
        pb.WatchRunResponse.FromString(data) async for data in service.WatchRun(request, context)
    ]

    assert [e.sequence for r in responses for b in r.batches for e in b.events] == [2, 3, 4]


async def test_a_run_is_started_and_watched(service, engine, context):
    request = pb.StartAndWatchRunRequest(start={"run_id": "r1", "graph": {"reference": "g"}})
    stream = service.StartAndWatchRun(request, context)

    first = await anext(stream)
    await engine.end(RUN)
    rest = [pb.StartAndWatchRunResponse.FromString(data) async for data in stream]

    assert first.run.run_id == "r1"
    assert [e.sequence for r in rest for b in r.batches for e in b.events] == [1, 2]


async def test_many_runs_are_watched_with_a_token_each_time(service, engine, context):
    stream = service.WatchRuns(pb.WatchRunsRequest(), context)
    token = pb.WatchRunsResponse.FromString(await anext(stream)).resume_token
    await stream.aclose()
    await engine.create(RUN)

    again = service.WatchRuns(pb.WatchRunsRequest(resume_token=token), context)
    await anext(again)
    response = pb.WatchRunsResponse.FromString(await anext(again))
    await again.aclose()

    assert [batch.run_id for batch in response.batches] == ["r1"]
    assert response.resume_token not in {"", token}


async def test_a_state_is_read_in_pages_of_one_moment(service, engine, context):
    engine.states[RUN] = StateStandIn(sequence=5, messages=[conversation_pb2.Message(role=2)] * 3)

    first = await service.GetRunState(pb.GetRunStateRequest(run_id="r1", page_size=2), context)
    second = await service.GetRunState(
        pb.GetRunStateRequest(run_id="r1", page_size=2, page_token=first.next_page_token), context
    )

    assert (first.sequence, second.sequence) == (5, 5)
    assert len(first.state.conversation.messages) == 2
    assert len(second.state.conversation.messages) == 1
    assert not second.next_page_token


@pytest.mark.parametrize(
    ("fields", "query"),
    [
        ({}, RunQuery()),
        ({"graph": "g"}, RunQuery(graph_name="g")),
        ({"graph": "g@3"}, RunQuery(graph_name="g", graph_version=3)),
        ({"graph": "sha256:1"}, RunQuery(graph_digest="sha256:1")),
        (
            {"statuses": [2, 3], "labels": {"a": "b"}, "roots_only": True},
            RunQuery(statuses=frozenset({2, 3}), labels={"a": "b"}, roots_only=True),
        ),
        (
            {"create_time_min": {"seconds": 1}, "create_time_max": {"seconds": 2}},
            RunQuery(create_min=1_000_000, create_max=2_000_000),
        ),
    ],
)
def test_a_filter_is_a_query(fields, query):
    assert query_of(pb.RunFilter(**fields)) == query
