"""Watches show everything, once and in order, and touch nothing."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from stepgraph.v1 import run_pb2, run_service_pb2
from stepgraph.v1.run_service_pb2_grpc import RunServiceStub
from stepgraph_server.storage.records import RunKey
from tests.support.failures import failure_of

RUN = RunKey("default", "r1")


async def sequences(call):
    found = []
    while (response := await call.read()) is not grpc.aio.EOF:
        found += [event.sequence for batch in response.batches for event in batch.events]
    return found


async def test_a_watch_shows_history_then_goes_live_and_ends_with_the_run(served, channel):
    await served.engine.create(RUN)
    await served.engine.go_on(RUN, 3)
    call = RunServiceStub(channel).WatchRun(run_service_pb2.WatchRunRequest(run_id="r1"))
    first = await call.read()

    await served.engine.go_on(RUN, 2)
    await served.engine.end(RUN)

    assert [e.sequence for b in first.batches for e in b.events] == [1, 2, 3, 4]
    assert await sequences(call) == [5, 6, 7]
    assert await call.code() is grpc.StatusCode.OK


async def test_a_watch_goes_on_after_a_sequence_and_may_end_with_the_history(served, channel):
    await served.engine.create(RUN)
    await served.engine.go_on(RUN, 3)
    request = run_service_pb2.WatchRunRequest(run_id="r1", after_sequence=2, history_only=True)

    assert await sequences(RunServiceStub(channel).WatchRun(request)) == [3, 4]


async def test_start_and_watch_gives_the_run_first_and_then_its_events(served, channel):
    request = run_service_pb2.StartAndWatchRunRequest(
        start={"run_id": "r1", "graph": {"reference": "g"}}
    )
    call = RunServiceStub(channel).StartAndWatchRun(request)
    first = await call.read()
    await served.engine.end(RUN)
    rest = await sequences(call)

    assert first.run.run_id == "r1"
    assert not first.batches
    assert rest == [1, 2]


async def test_a_run_that_does_not_exist_can_t_be_watched(channel):
    failure = await failure_of(
        RunServiceStub(channel).WatchRun(run_service_pb2.WatchRunRequest(run_id="nobody"))
    )

    assert (failure.code, failure.reason) == (grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND")


async def test_a_quarantined_run_shows_what_is_readable_and_then_says_so(served, channel):
    await served.engine.create(RUN)
    await served.engine.go_on(RUN, 2)
    served.engine.quarantined.add(RUN)
    call = RunServiceStub(channel).WatchRun(run_service_pb2.WatchRunRequest(run_id="r1"))

    first = await call.read()
    failure = await failure_of(call)

    assert len(first.batches[0].events) == 3
    assert (failure.code, failure.reason) == (grpc.StatusCode.DATA_LOSS, "RUN_QUARANTINED")


async def test_watching_many_runs_resumes_where_it_was_left(served, channel):
    stub = RunServiceStub(channel)
    call = stub.WatchRuns(run_service_pb2.WatchRunsRequest())
    token = (await call.read()).resume_token
    call.cancel()
    await served.engine.create(RUN)
    await served.engine.create(RunKey("default", "r2"))
    await served.engine.create(RunKey("other", "r3"))

    again = stub.WatchRuns(run_service_pb2.WatchRunsRequest(resume_token=token))
    seen = []
    while len(seen) < 2:
        response = await again.read()
        assert response.resume_token
        seen += [batch.run_id for batch in response.batches]

    assert seen == ["r1", "r2"]
    again.cancel()


async def test_a_resume_token_of_another_watch_is_refused(channel):
    stub = RunServiceStub(channel)
    call = stub.WatchRuns(run_service_pb2.WatchRunsRequest())
    token = (await call.read()).resume_token
    call.cancel()
    other = run_service_pb2.WatchRunsRequest(
        resume_token=token, filter=run_service_pb2.RunFilter(roots_only=True)
    )

    failure = await failure_of(stub.WatchRuns(other))

    assert failure.reason == "RESUME_TOKEN_INVALID"


async def test_a_watch_that_is_left_is_forgotten_and_its_run_goes_on(served, channel):
    await served.engine.create(RUN)
    stub = RunServiceStub(channel)
    calls = [stub.WatchRun(run_service_pb2.WatchRunRequest(run_id="r1")) for _ in range(100)]
    for call in calls:
        await call.read()
    assert served.server.gate.count("watch") == 100

    for call in calls:
        call.cancel()
    async with asyncio.timeout(5):
        await served.server.gate.until_empty("watch")

    run = (await stub.GetRun(run_service_pb2.GetRunRequest(run_id="r1"))).run
    assert run.status == run_pb2.RUN_STATUS_RUNNING


async def test_a_deadline_ends_the_watch_and_nothing_else(served, channel):
    await served.engine.create(RUN)
    call = RunServiceStub(channel).WatchRun(
        run_service_pb2.WatchRunRequest(run_id="r1"), timeout=0.1
    )

    with pytest.raises(grpc.RpcError) as caught:
        await sequences(call)

    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    async with asyncio.timeout(5):
        await served.server.gate.until_empty("watch")
