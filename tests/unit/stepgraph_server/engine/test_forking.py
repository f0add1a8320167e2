"""Forks and retries of runs, on a whole engine."""

from __future__ import annotations

import asyncio

import pytest

from stepgraph.v1 import run_pb2, run_service_pb2
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.inputs import Cancel
from stepgraph_server.engine.callers import Caller, RequestKey
from stepgraph_server.storage.records import RunKey
from tests.support.engine_executor import Executor, failed, succeeded
from tests.support.engine_rig import NAMESPACE, question, rig, steps, wide, work
from tests.support.engine_time import in_virtual_time
from tests.support.graphs import graph

R1 = RunKey(NAMESPACE, "r1")


async def fork(it, **fields):
    request = run_service_pb2.ForkRunRequest(run_id="r1", new_run_id="f1", **fields)
    return await it.engine.fork_run(NAMESPACE, request, Caller(), None)


async def retry(it, run_id="r1", new_run_id="again"):
    request = run_service_pb2.RetryRunRequest(run_id=run_id, new_run_id=new_run_id)
    return await it.engine.retry_run(NAMESPACE, request, Caller(), None)


def completed_tasks(it, run_id):
    return [
        event.task_completed.task_id
        for event in it.store.events(run_id)
        if event.HasField("task_completed")
    ]


@in_virtual_time
async def test_a_fork_does_not_do_again_what_had_ended():
    """Its journal begins with the other's, and both go on by themselves."""
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(steps(3))
        executor.finish_all()
        await it.settle()
        at = len(it.store.events("r1"))
        run = await fork(it)
        await it.settle()
        assert run.origin == run_pb2.RunOrigin(run_id="r1", sequence=at)
        assert it.store.events("f1")[:at] == it.store.events("r1")[:at]
        assert sorted(task for task, _ in executor.running) == ["f1/2/n1/t0/e0", "r1/2/n1/t0/e0"]
        executor.script = succeeded
        executor.finish_all()
        assert (await it.settle("f1"), it.status("r1")) == ("COMPLETED", "COMPLETED")
        assert completed_tasks(it, "f1") == completed_tasks(it, "r1")
        assert len(executor.received) == 1 + 2 * 2
        it.check_quiescent()


@in_virtual_time
async def test_a_fork_began_when_it_was_made_however_it_is_folded():
    """The ids of its trace are made of that, and must be the same after a restart."""
    async with rig() as it:
        await Executor(it).connect()
        await it.start(steps(3))
        await it.settle()
        await asyncio.sleep(5)
        await fork(it)
        key = RunKey(NAMESPACE, "f1")
        held = (await it.runner.settled(key)).state
        record = await it.runner.folder.record(key)
        folded = await it.runner.folder.fold_until(key, record, None)
        assert held.started_at == folded.started_at == it.clock.now()


@in_virtual_time
async def test_a_fork_survives_a_restart():
    """It is folded by the graphs of both parts."""
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(work())
        other = work(retry={"max_tries": 1})
        compiled = it.graphs.compile(other)
        await it.store.graphs.put(
            NAMESPACE, "g", compiled.digest, other.SerializeToString(), it.clock.now()
        )
        run = await fork(it, graph="g@1")
        assert (run.graph.name, run.graph.version) == ("g", 1)
        await it.settle()
        record = await it.runner.folder.record(RunKey(NAMESPACE, "f1"))
        folded = await it.runner.folder.fold_until(RunKey(NAMESPACE, "f1"), record, None)
        assert folded.graph.digest == compiled.digest
        assert folded.tasks["1/a/t0/e0"].retry.max_tries == 1
        executor.finish_all()
        assert await it.settle("f1") == "COMPLETED"


@in_virtual_time
async def test_a_fork_ends_an_append_or_names_those_that_do():
    """The message says where it would do."""
    async with rig() as it:
        await it.start(steps(2))
        head = len(it.store.events("r1"))
        with pytest.raises(
            Refused, match=f"recorded together with others; fork at {head}"
        ) as between:
            await fork(it, sequence=2)
        assert between.value.reason == "SEQUENCE_OUT_OF_RANGE"
        with pytest.raises(Refused, match=f"has {head} events") as beyond:
            await fork(it, sequence=head + 1)
        assert beyond.value.metadata["last_sequence"] == str(head)
        with pytest.raises(Refused, match="RUN_NOT_FOUND"):
            await it.engine.fork_run(
                NAMESPACE, run_service_pb2.ForkRunRequest(run_id="no"), Caller(), None
            )


@in_virtual_time
async def test_a_fork_that_is_refused_was_never_there():
    """Nothing is left of it, and its id is free."""
    async with rig() as it:
        await it.start(question())
        answer = {"answer": {"activation_id": "9/x", "answer": {"proceed": {}}}}
        with pytest.raises(Refused, match="9/x asks nothing"):
            await fork(it, changes=[answer])
        two = [{"patch": {"update": {}}}, {"patch": {"update": {}}}]
        with pytest.raises(Refused, match="more than one patch"):
            await fork(it, changes=two)
        await it.settle()
        assert it.status("f1") == ""
        assert it.runner.live_count == 0
        answer["answer"]["activation_id"] = "1/ask"
        await fork(it, changes=[answer])
        await Executor(it, script=succeeded).connect()
        assert (await it.settle("f1"), it.status()) == ("COMPLETED", "SUSPENDED")


@in_virtual_time
async def test_a_question_is_asked_again_under_another_id():
    """Both can be answered, each by its own."""
    async with rig() as it:
        await it.start(question())
        await fork(it)
        await it.settle("f1")
        found = await it.store.interrupts.list(NAMESPACE, None, None, 0, None, 10)
        assert {key.run_id: row.status for row, key in found} == {"r1": 1, "f1": 1}
        assert len({row.interrupt_id for row, _ in found}) == 2


@in_virtual_time
async def test_limits_count_anew():
    """Supersteps from those of the prefix, tokens from none, time from now."""
    async with rig() as it:
        await Executor(it, script=succeeded).connect()
        await it.start(steps(3), max_iterations=2, time_limit={"seconds": 60})
        assert await it.settle() == "FAILED"
        cut = it.store.events("r1")[-1].sequence
        [append] = await it.store.journal.read(R1, cut - 1, 1)
        await fork(it, sequence=append.first_sequence - 1, max_iterations=5)
        assert await it.settle("f1") == "COMPLETED"
        forked = next(e.run_forked for e in it.store.events("f1") if e.HasField("run_forked"))
        assert forked.max_iterations == 2 + 5
        assert forked.HasField("time_limit_time")


@in_virtual_time
async def test_a_repeated_request_gives_the_first_fork():
    """Whatever became of it since."""
    async with rig() as it:
        await it.start(work())
        key = RequestKey(method="ForkRun", request_id="x", fingerprint="f")
        request = run_service_pb2.ForkRunRequest(run_id="r1")
        first = await it.engine.fork_run(NAMESPACE, request, Caller(), key)
        again = await it.engine.fork_run(NAMESPACE, request, Caller(), key)
        assert first == again
        assert first.run_id == "made-1"


# Retries


@in_virtual_time
async def test_a_retry_begins_just_before_the_failure_and_repeats_nothing():
    """Also not what came while the run was stopping because of it."""
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(wide(3, retry={"max_tries": 1}))
        await it.settle()
        first, second, third = sorted(executor.running.values(), key=lambda task: task.task_id)
        executor.report(succeeded(first))
        executor.report(failed(second))
        await it.settle()
        assert it.status() == "STOPPING"
        executor.report(succeeded(third))
        assert await it.settle() == "FAILED"
        executor.received.clear()
        run = await retry(it)
        await it.settle()
        assert run.origin.run_id == "r1"
        assert executor.received == [("again/2/w1/t0/e0", 1)]
        executor.finish_all()
        assert await it.settle("again") == "COMPLETED"
        assert it.status("r1") == "FAILED"


@in_virtual_time
async def test_a_run_that_failed_at_once_begins_anew():
    """There is nothing before its failure, but what it was started with."""
    async with rig() as it:
        broken = graph({"a": {"action": {"tool_call": {"tool_name": "{{missing}}"}}}}, [])
        await it.start(broken, labels={"a": "b"}, time_limit={"seconds": 9})
        assert await it.settle() == "FAILED"
        run = await retry(it)
        assert (run.run_id, dict(run.labels), run.origin.run_id) == ("again", {"a": "b"}, "r1")
        assert await it.settle("again") == "FAILED"


@in_virtual_time
async def test_only_what_failed_can_be_retried():
    """Whatever else it is, its status is named."""
    async with rig() as it:
        await it.start(work())
        with pytest.raises(Refused, match="'r1' is RUNNING; only one that is FAILED") as refused:
            await retry(it)
        assert refused.value.reason == "RUN_NOT_ENDED"
        await it.engine.change_run(NAMESPACE, "r1", Cancel(reason=""), None)
        await it.settle()
        with pytest.raises(Refused, match="is CANCELLED"):
            await retry(it)


@in_virtual_time
async def test_the_highest_limit_stays_one_that_can_be_said():
    """Counted on from where the fork begins, it would be more than its field holds."""
    async with rig() as it:
        await Executor(it, script=failed).connect()
        await it.start(work(retry={"max_tries": 1}), max_iterations=2**32 - 1)
        assert await it.settle() == "FAILED"
        await retry(it)
        await fork(it, sequence=3, max_iterations=2**32 - 1)
        for run_id in ("again", "f1"):
            await it.settle(run_id)
            forked = next(e.run_forked for e in it.store.events(run_id) if e.HasField("run_forked"))
            assert forked.max_iterations == 2**32 - 1
