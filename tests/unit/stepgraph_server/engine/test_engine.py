"""What callers can do with runs, and what a server takes up when it starts again."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest

from stepgraph.v1 import interrupt_pb2, run_service_pb2
from stepgraph_server.core.errors import Quarantined, Refused
from stepgraph_server.core.inputs import Cancel
from stepgraph_server.core.instants import SECOND
from stepgraph_server.engine import recovery
from stepgraph_server.engine.callers import Caller, RequestKey
from stepgraph_server.engine.creating import MAX_CREATION_TRIES
from stepgraph_server.engine.recovery import RECOVERED_AT_ONCE
from stepgraph_server.storage.errors import RunExists
from stepgraph_server.storage.journal import Backlog
from stepgraph_server.storage.records import RunKey
from tests.support.engine_executor import Executor, failed, succeeded
from tests.support.engine_rig import NAMESPACE, question, reason, rig, steps, together, wide, work
from tests.support.engine_store import FaultyStore, unavailable
from tests.support.engine_time import in_virtual_time, turns
from tests.support.graphs import graph


def request(request_id: str = "", run_id: str = "", **labels: str):
    made = run_service_pb2.StartRunRequest(request_id=request_id, run_id=run_id, labels=labels)
    made.graph.definition.CopyFrom(work())
    return made


def proceed() -> interrupt_pb2.InterruptAnswer:
    return interrupt_pb2.InterruptAnswer(proceed=interrupt_pb2.InterruptAnswer.Proceed())


def abort(reason: str) -> interrupt_pb2.InterruptAnswer:
    return interrupt_pb2.InterruptAnswer(abort=interrupt_pb2.InterruptAnswer.Abort(reason=reason))


def store_question(store: FaultyStore) -> str:
    (opened,) = (
        event.interrupt_opened.question.interrupt_id
        for event in store.events("r1")
        if event.WhichOneof("kind") == "interrupt_opened"
    )
    return opened


# Starting


@in_virtual_time
async def test_a_run_is_returned_once_it_is_durable():
    async with rig() as it:
        it.store.journal.hold()
        async with asyncio.TaskGroup() as group:
            starting = group.create_task(it.start(work()))
            await turns()
            assert not starting.done()
            it.store.journal.release()
        run = starting.result()
        assert run.run_id == "r1"
        assert run.last_sequence == len(it.store.events("r1"))


@in_virtual_time
@pytest.mark.parametrize("run_id", ["", "mine"])
async def test_equal_requests_at_once_make_one_run(run_id):
    async with rig() as it:
        runs = await together(
            *(it.engine.start_run(NAMESPACE, request("q1", run_id), Caller()) for _ in range(10))
        )
        assert [run.run_id for run in runs] == [runs[0].run_id] * 10
        assert len(it.store.runs.by_key) == 1
        assert it.runner.live_count == 1
        await it.engine.change_run(NAMESPACE, runs[0].run_id, Cancel(reason=""), None)
        it.check_quiescent()


@in_virtual_time
@pytest.mark.parametrize("run_id", ["", "mine"])
async def test_a_request_id_is_not_for_another_request(run_id):
    async with rig() as it:
        one, other = await together(
            it.engine.start_run(NAMESPACE, request("q1", run_id, a="1"), Caller()),
            it.engine.start_run(NAMESPACE, request("q1", run_id, a="2"), Caller()),
        )
        assert one.run_id
        assert reason(other) == "REQUEST_ID_REUSED"
        with pytest.raises(Refused, match="REQUEST_ID_REUSED"):
            await it.engine.start_run(NAMESPACE, request("q1", run_id, a="2"), Caller())
        other = await it.engine.start_run("elsewhere", request("q1", "far", a="2"), Caller())
        assert other.run_id == "far"


@in_virtual_time
async def test_a_repeated_request_gets_the_first_response_after_the_run_and_a_restart():
    store = FaultyStore()
    async with rig(store) as it:
        first = await it.engine.start_run(NAMESPACE, request("q1"), Caller())
        await Executor(it, script=succeeded).connect()
        assert await it.settle(first.run_id) == "COMPLETED"
        assert await it.engine.start_run(NAMESPACE, request("q1"), Caller()) == first
    async with rig(store) as it:
        assert await it.engine.start_run(NAMESPACE, request("q1"), Caller()) == first


@in_virtual_time
async def test_an_id_of_a_run_is_taken_once():
    async with rig() as it:
        await it.start(work())
        with pytest.raises(Refused, match="RUN_EXISTS"):
            await it.start(work())
        await it.engine.change_run(NAMESPACE, "r1", Cancel(reason=""), None)
        assert it.runner.live_count == 0
        with pytest.raises(Refused, match="RUN_EXISTS"):
            await it.start(work())
        assert it.runner.live_count == 0
        it.check_quiescent()


@in_virtual_time
async def test_what_happens_to_a_run_is_not_decided_on_one_that_is_refused():
    async with rig() as it:
        await it.start(question())
        assert await it.settle() == "SUSPENDED"
        asked = store_question(it.store)
        again, answered = await together(
            it.start(work()), it.engine.answer(NAMESPACE, asked, proceed(), "me", None)
        )
        assert reason(again) == "RUN_EXISTS"
        assert answered.answered_by == "me"
        assert await it.settle() == "RUNNING"


@in_virtual_time
async def test_an_id_that_only_seemed_to_be_in_use_can_be_taken():
    async with rig() as it:
        # Somebody asks for the run while nothing can be read, so that its id is in memory until something can.
        it.store.runs.unreadable = True
        asking = asyncio.gather(
            it.runner.settled(RunKey(NAMESPACE, "r1")), it.start(work()), return_exceptions=True
        )
        await asyncio.sleep(1)
        it.store.runs.unreadable = False
        looked, run = await asking
        assert reason(looked) == "RUN_NOT_FOUND"
        assert run.run_id == "r1"


@in_virtual_time
async def test_an_id_that_is_in_use_again_and_again_is_given_up(monkeypatch):
    async with rig() as it:
        tries = []

        def create(key, state, delivery):
            tries.append(key)
            delivery.reply.failed(RunExists(key))

        monkeypatch.setattr(it.runner, "create", create)
        with pytest.raises(Refused, match="RUN_EXISTS"):
            await it.start(work())
        assert len(tries) == MAX_CREATION_TRIES


@in_virtual_time
async def test_a_run_that_can_not_be_written_was_never_started():
    async with rig() as it:
        it.store.journal.unavailable_because = "the disk is full"
        with pytest.raises(Refused, match="JOURNAL_UNAVAILABLE"):
            await it.start(work())
        assert it.runner.live_count == 0
        assert len(it.runner.timers) == 0
        it.store.journal.unavailable_because = ""
        await it.start(work())


@in_virtual_time
async def test_new_runs_are_refused_while_too_much_waits_to_be_written(monkeypatch):
    async with rig() as it:
        monkeypatch.setattr(it.store.journal, "backlog", lambda: Backlog(1_000_000, 0))
        with pytest.raises(Refused, match="OVERLOADED") as refused:
            await it.start(work())
        assert refused.value.retry_after == SECOND


@in_virtual_time
async def test_a_caller_that_goes_away_takes_nothing_with_it():
    async with rig() as it:
        it.store.journal.hold()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await it.start(work())
        it.store.journal.release()
        await Executor(it, script=succeeded).connect()
        assert await it.settle() == "COMPLETED"


@in_virtual_time
async def test_a_registered_graph_is_started_by_reference():
    async with rig() as it:
        compiled = it.graphs.compile(work())
        await it.store.graphs.put(
            NAMESPACE, "g", compiled.digest, work().SerializeToString(), it.clock.now()
        )
        made = run_service_pb2.StartRunRequest(time_limit={"seconds": 5}, labels={"a": "b"})
        made.graph.reference = "g"
        made.initial_state.should_terminate = False
        made.input.value.text = "hello"
        run = await it.engine.start_run(NAMESPACE, made, Caller(traceparent="t"))
        assert (run.graph.name, run.graph.version, dict(run.labels)) == ("g", 1, {"a": "b"})
        await asyncio.sleep(6)
        assert it.status(run.run_id) == "FAILED"


# Cancelling and answering


@in_virtual_time
async def test_a_run_that_is_not_there_can_not_be_cancelled_or_answered():
    async with rig() as it:
        with pytest.raises(Refused, match="RUN_NOT_FOUND"):
            await it.engine.change_run(NAMESPACE, "r1", Cancel(reason=""), None)
        with pytest.raises(Refused, match="INTERRUPT_NOT_FOUND"):
            await it.engine.answer(NAMESPACE, "q-1", proceed(), "me", None)
        assert it.runner.live_count == 0


@in_virtual_time
async def test_of_two_answers_at_once_one_wins_and_the_same_again_is_fine():
    async with rig() as it:
        await it.start(question())
        await it.settle()
        asked = store_question(it.store)

        def answer(what):
            return it.engine.answer(NAMESPACE, asked, what, "me", None)

        it.store.journal.hold()
        answering = asyncio.gather(
            answer(proceed()), answer(abort("no")), answer(proceed()), return_exceptions=True
        )
        await turns()
        # The loser hears of the answer that won when that is durable, and not before.
        assert not answering.done()
        it.store.journal.release()
        first, second, same = await answering
        assert first == same
        assert reason(second) == "INTERRUPT_ANSWERED"
        assert first.answered_by == "me"
        await Executor(it, script=succeeded).connect()
        assert await it.settle() == "COMPLETED"
        assert await answer(proceed()) == first
        with pytest.raises(Refused, match="INTERRUPT_ANSWERED"):
            await answer(abort("no"))
        it.check_quiescent()


@in_virtual_time
async def test_a_question_of_a_run_that_ended_is_not_answered():
    async with rig() as it:
        await it.start(question())
        await it.settle()
        asked = store_question(it.store)
        await it.engine.change_run(NAMESPACE, "r1", Cancel(reason="enough"), None)
        with pytest.raises(Refused, match="RUN_ENDED"):
            await it.engine.answer(NAMESPACE, asked, proceed(), "me", None)
        again = await it.engine.change_run(NAMESPACE, "r1", Cancel(reason="enough"), None)
        assert again.failure.message == "enough"
        it.check_quiescent()


@in_virtual_time
async def test_a_run_that_ended_otherwise_can_not_be_cancelled():
    async with rig() as it:
        await it.start(graph({"a": {}}, terminal_nodes=["a"]))
        assert it.status() == "COMPLETED"
        with pytest.raises(Refused, match="RUN_ENDED"):
            await it.engine.change_run(NAMESPACE, "r1", Cancel(reason=""), None)


@in_virtual_time
async def test_an_answer_is_remembered_by_its_request_id_also_if_it_changes_nothing():
    async with rig() as it:
        await it.start(question())
        await it.settle()
        asked = store_question(it.store)

        def answer(what, request_id, fingerprint):
            key = RequestKey(method="Answer", request_id=request_id, fingerprint=fingerprint)
            return it.engine.answer(NAMESPACE, asked, what, "me", key)

        first = await answer(proceed(), "q1", "f1")
        assert await answer(proceed(), "q1", "f1") == first
        assert await answer(proceed(), "q2", "f1") == first
        with pytest.raises(Refused, match="REQUEST_ID_REUSED"):
            await answer(abort(""), "q2", "f2")
        key = RequestKey(method="Cancel", request_id="q1", fingerprint="f1")
        run = await it.engine.change_run(NAMESPACE, "r1", Cancel(reason=""), key)
        assert await it.engine.change_run(NAMESPACE, "r1", Cancel(reason=""), key) == run


@in_virtual_time
async def test_a_request_id_that_can_not_be_stored_is_said(monkeypatch):
    async with rig() as it:
        await it.start(work())
        await it.engine.change_run(NAMESPACE, "r1", Cancel(reason=""), None)

        async def fail(*_):
            raise unavailable()

        monkeypatch.setattr(it.store.requests, "put", fail)
        key = RequestKey(method="Cancel", request_id="q1", fingerprint="f1")
        with pytest.raises(Refused, match="JOURNAL_UNAVAILABLE"):
            await it.engine.change_run(NAMESPACE, "r1", Cancel(reason=""), key)


@in_virtual_time
async def test_two_answers_with_one_request_id_are_one_answer():
    two = graph(
        {"start": {}, "a": {"interrupt": True}, "b": {"interrupt": True}},
        ["start > a", "start > b"],
    )
    async with rig() as it:
        await it.start(two)
        asked = [
            event.interrupt_opened.question.interrupt_id
            for event in it.store.events("r1")
            if event.WhichOneof("kind") == "interrupt_opened"
        ]
        calls = await together(
            *(
                it.engine.answer(
                    NAMESPACE,
                    interrupt_id,
                    proceed(),
                    "me",
                    RequestKey(method="Answer", request_id="q1", fingerprint=interrupt_id),
                )
                for interrupt_id in asked
            ),
            it.engine.change_run(NAMESPACE, "r1", Cancel(reason="enough"), None),
        )
        assert calls[0].interrupt_id == asked[0]
        assert reason(calls[1]) == "REQUEST_ID_REUSED"
        # The cancel stood on the answer that was refused; it is carried out all the same.
        assert calls[2].failure.message == "enough"
        assert await it.settle() == "CANCELLED"
        it.check_quiescent()


# Reading


@in_virtual_time
async def test_only_who_has_an_attempt_reads_its_input():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(work(retry={"first_delay": "5s"}))
        await it.settle()
        (task_id, attempt), task = next(iter(executor.running.items()))

        async def read(number, token):
            return await it.engine.task_input(NAMESPACE, task_id, number, token)

        assert await read(attempt, executor.token) == task.input.SerializeToString()
        for number, token in ((attempt + 1, executor.token), (attempt, b"another")):
            with pytest.raises(Refused, match="TASK_NOT_FOUND"):
                await read(number, token)
        executor.report(failed(task))
        await it.settle()
        with pytest.raises(Refused, match="TASK_NOT_FOUND"):
            await read(attempt, executor.token)
        with pytest.raises(Refused, match="TASK_NOT_FOUND"):
            await it.engine.task_input(NAMESPACE, "nothing/1", 1, executor.token)


@in_virtual_time
async def test_a_state_can_be_read_after_every_event():
    async with rig() as it:
        await Executor(it, script=succeeded).connect()
        await it.start(work())
        assert await it.settle() == "COMPLETED"
        head = len(it.store.events("r1"))
        for sequence in range(1, head + 1):
            assert (await it.engine.run_state(NAMESPACE, "r1", sequence)).sequence == sequence
        assert (await it.engine.run_state(NAMESPACE, "r1", 0)).sequence == head
        with pytest.raises(Refused, match="SEQUENCE_OUT_OF_RANGE"):
            await it.engine.run_state(NAMESPACE, "r1", head + 1)
        with pytest.raises(Refused, match="RUN_NOT_FOUND"):
            await it.engine.run_state(NAMESPACE, "r2", 0)
        it.store.corrupt("r1")
        with pytest.raises(Quarantined):
            await it.engine.run_state(NAMESPACE, "r1", 0)


# Starting again


def restart(executor: Executor, it) -> None:
    """Let a process know of another engine."""
    executor.rig = it


@in_virtual_time
async def test_after_a_crash_an_executor_keeps_what_it_lists_and_loses_what_it_does_not():
    store = FaultyStore()
    async with rig(store) as it:
        executor = await Executor(it).connect()
        await it.start(wide(3))
        await it.settle()
        assert len(executor.running) == 3
        it.crash()
    forgotten = next(iter(executor.running))
    del executor.running[forgotten]
    async with rig(store) as it:
        restart(executor, it)
        await executor.connect()
        await it.settle()
        assert store.kinds("r1").count("task_lost") == 1
        # What it had forgotten was handed out again, as another attempt and not another try.
        assert (forgotten[0], 2) in executor.running
        assert executor.running[forgotten[0], 2].tries == 1
        executor.finish_all()
        assert await it.settle() == "COMPLETED"
        it.check_quiescent()


@in_virtual_time
async def test_an_executor_that_is_faster_than_recovery_keeps_what_it_has():
    store = FaultyStore()
    async with rig(store) as it:
        executor = await Executor(it).connect()
        await it.start(wide(3))
        await it.settle()
        it.crash()
    store.runs.unreadable = True
    async with rig(store) as it:
        restart(executor, it)
        async with asyncio.TaskGroup() as group:
            group.create_task(executor.connect())
            await asyncio.sleep(1)
            store.runs.unreadable = False
        await it.settle()
        assert "task_lost" not in store.kinds("r1")
        executor.finish_all()
        assert await it.settle() == "COMPLETED"
        it.check_quiescent()


@in_virtual_time
async def test_after_a_crash_attempts_of_who_never_comes_are_lost_after_the_grace():
    store = FaultyStore()
    async with rig(store) as it:
        await Executor(it).connect()
        await it.start(work())
        await it.settle()
        it.crash()
    async with rig(store) as it:
        other = await Executor(it, "e2", script=succeeded).connect()
        await asyncio.sleep(29)
        assert not other.received
        await asyncio.sleep(2)
        assert it.status() == "COMPLETED"
        it.check_quiescent()


@in_virtual_time
async def test_after_a_crash_a_new_instance_has_lost_everything_at_once():
    store = FaultyStore()
    async with rig(store) as it:
        await Executor(it).connect()
        await it.start(work())
        await it.settle()
        it.crash()
    store.runs.unreadable = True
    async with rig(store) as it:
        # It is here before the run could be read.
        await Executor(it, token=b"another process.", script=succeeded).connect()
        store.runs.unreadable = False
        await asyncio.sleep(1)
        assert it.status() == "COMPLETED"
        it.check_quiescent()


@in_virtual_time
async def test_an_assignment_that_did_not_become_durable_did_not_happen():
    store = FaultyStore()
    async with rig(store) as it:
        await it.start(work())
        store.journal.hold()
        executor = await Executor(it).connect()
        await it.settle()
        assert not executor.received
        it.crash()
    async with rig(store) as it:
        restart(executor, it)
        executor.script = succeeded
        await executor.connect()
        assert await it.settle() == "COMPLETED"
        assert executor.received[0][1] == 1


@in_virtual_time
async def test_a_result_that_was_acknowledged_survives_a_crash_and_others_come_again():
    store = FaultyStore()
    async with rig(store) as it:
        executor = await Executor(it).connect()
        await it.start(wide(2))
        await it.settle()
        one, other = executor.running.values()
        executor.report(succeeded(one))
        await it.settle()
        store.journal.hold()
        executor.report(succeeded(other))
        await it.settle()
        assert executor.verdicts() == ["ACCEPTED"]
        it.crash()
    async with rig(store) as it:
        restart(executor, it)
        await executor.connect()
        assert await it.settle() == "COMPLETED"
        assert executor.verdicts() == ["ACCEPTED", "ACCEPTED"]
        assert store.kinds("r1").count("task_completed") == 2
        it.check_quiescent()


@in_virtual_time
async def test_tries_and_due_times_survive_a_crash():
    store = FaultyStore()
    async with rig(store) as it:
        await Executor(it, script=failed).connect()
        await it.start(work(retry={"max_tries": 4, "first_delay": "1s", "max_delay": "3s"}))
        await asyncio.sleep(1.5)
        it.crash()
    async with rig(store) as it:
        await Executor(it, token=b"another process.", script=failed).connect()
        await asyncio.sleep(60)
        assert it.status() == "FAILED"
    times = [
        event.time.ToMicroseconds()
        for event in store.events("r1")
        if event.WhichOneof("kind") == "task_failed"
    ]
    assert [(two - one) / 1e6 for one, two in itertools.pairwise(times)] == [1.0, 2.0, 3.0]


@in_virtual_time
async def test_suspended_runs_cost_no_memory_and_wake_at_their_time():
    store = FaultyStore()
    async with rig(store) as it:
        await it.start(question(), time_limit={"seconds": 100})
        assert await it.settle() == "SUSPENDED"
        assert it.runner.live_count == 0
        it.crash()
    reads = store.runs.reads
    async with rig(store) as it:
        await asyncio.sleep(50)
        assert it.runner.live_count == 0
        assert store.runs.reads == reads
        await asyncio.sleep(100)
        assert it.status() == "FAILED"
        it.check_quiescent()
        assert len(it.runner.timers) == 0


@in_virtual_time
async def test_a_run_that_was_stopping_ends_after_a_crash():
    store = FaultyStore()
    async with rig(store) as it:
        await Executor(it).connect()
        await it.start(work())
        await it.settle()
        await it.engine.change_run(NAMESPACE, "r1", Cancel(reason="enough"), None)
        assert it.status() == "STOPPING"
        it.crash()
    async with rig(store) as it:
        await asyncio.sleep(11)
        assert it.status() == "CANCELLED"
        it.check_quiescent()


@in_virtual_time
async def test_recovery_takes_up_more_runs_than_it_reads_at_once(monkeypatch):
    monkeypatch.setattr("stepgraph_server.engine.recovery.RECOVERY_PAGE", 3)
    store = FaultyStore()
    async with rig(store) as it:
        for number in range(7):
            await it.start(work(), f"r{number}")
        it.crash()
    async with rig(store) as it:
        await Executor(it, script=succeeded).connect()
        await turns(200)
        assert {it.status(f"r{number}") for number in range(7)} == {"COMPLETED"}
        it.check_quiescent()


@in_virtual_time
async def test_while_many_runs_are_taken_up_others_are_asked_for_and_the_log_says_how_far_it_is(
    monkeypatch, caplog
):
    """Recovery has a few runs under way at a time; whoever asks for one of the last gets it at once."""
    monkeypatch.setattr(recovery, "RECOVERY_REPORT_S", 0.0)
    caplog.set_level(logging.INFO)
    store = FaultyStore()
    async with rig(store) as before:
        for number in range(200):
            await before.start(work(), f"r{number}")
        before.crash()
    async with rig(store) as it:
        await turns(3)
        assert 0 < it.runner.live_count <= 2 * RECOVERED_AT_ONCE
        await it.engine.change_run(NAMESPACE, "r199", Cancel(reason=""), None)
        assert it.runner.live_count <= 3 * RECOVERED_AT_ONCE
        assert await it.settle() == "RUNNING"
        while it.runner.live_count < 199:
            await turns(10)
        await turns(10)
    said = [
        (r.action, getattr(r, "done", None), r.count)
        for r in caplog.records
        if "recover" in r.action
    ]
    assert said[0] == ("runs.recovering", 0, 200)
    assert said[-1] == ("runs.recovered", None, 200)
    assert 2 < len(said) <= 2 + 200 / RECOVERED_AT_ONCE


@in_virtual_time
async def test_a_run_that_can_not_be_read_is_left_alone_and_others_live():
    store = FaultyStore()
    async with rig(store) as it:
        for run_id in ("bad", "r1"):
            await it.start(steps(2), run_id)
        it.crash()
    store.corrupt("bad")
    async with rig(store) as it:
        await Executor(it, script=succeeded).connect()
        assert await it.settle() == "COMPLETED"
        assert store.runs.by_key[RunKey(NAMESPACE, "bad")].record.quarantined
        with pytest.raises(Quarantined):
            await it.engine.change_run(NAMESPACE, "bad", Cancel(reason=""), None)
        with pytest.raises(Refused, match="RUN_EXISTS"):
            await it.start(work(), "bad")
        it.check_quiescent()
