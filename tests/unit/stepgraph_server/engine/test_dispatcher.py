"""Between runs and executors: no slot is taken twice, none leaks, and nobody waits beside free room."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import task_pb2
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.inputs import Cancel, RunLimits
from stepgraph_server.core.instants import SECOND, Span
from stepgraph_server.engine.live import Delivery
from stepgraph_server.engine.loading import MAX_LOADS
from stepgraph_server.engine.reports import STRAYS_AT_ONCE, STRAYS_PERIOD_S
from stepgraph_server.storage.records import RunKey
from tests.support.engine_executor import Executor, cancelled, failed, succeeded
from tests.support.engine_rig import NAMESPACE, Rig, question, rig, steps, together, wide, work
from tests.support.engine_store import FaultyStore
from tests.support.engine_time import VirtualLoop, in_virtual_time, turns
from tests.support.graphs import graph
from tests.support.hellos import agent, hello, llm, received

R1 = RunKey(NAMESPACE, "r1")


def codes(it: Rig, run_id: str = "r1") -> list[str]:
    """Return the codes of the attempts of a run that failed."""
    return [
        event.task_failed.failure.code
        for event in it.store.events(run_id)
        if event.WhichOneof("kind") == "task_failed"
    ]


def losses(it: Rig, run_id: str = "r1") -> list[str]:
    """Return why attempts of a run were lost."""
    return [
        event.task_lost.message
        for event in it.store.events(run_id)
        if event.WhichOneof("kind") == "task_lost"
    ]


# Room


@in_virtual_time
async def test_an_executor_never_has_more_than_it_takes():
    async with rig() as it:
        one = await Executor(it, max_in_flight=4).connect()
        await it.start(wide(20))
        await it.settle()
        assert len(one.running) == 4
        two = await Executor(it, "e2", max_in_flight=4).connect()
        await it.settle()
        assert len(two.running) == 4
        while it.status() == "RUNNING":
            one.finish_all()
            two.finish_all()
            await it.settle()
        assert (one.most_running, two.most_running) == (4, 4)
        assert len(two.received) >= 8
        it.check_quiescent()


@in_virtual_time
async def test_an_executor_that_wants_less_gets_nothing_new_until_it_has_less():
    async with rig() as it:
        executor = await Executor(it, max_in_flight=4).connect()
        await it.start(wide(20))
        await it.settle()
        for capacity in (1, 0):
            it.registry.resize(executor.seat, capacity)
            executor.max_in_flight = max(capacity, 1)
            executor.finish_all()
            await it.settle()
            assert len(executor.running) == capacity
        it.registry.resize(executor.seat, 2)
        executor.max_in_flight = 2
        await it.settle()
        assert len(executor.running) == 2
        executor.script = succeeded
        executor.finish_all()
        assert await it.settle() == "COMPLETED"
        it.check_quiescent()


@in_virtual_time
async def test_what_finds_no_room_when_its_turn_comes_waits_on():
    async with rig() as it:
        # One slot, and two kinds of work: room for one of each is found when it becomes free, and is there once.
        executor = Executor(it, max_in_flight=1, capabilities=[agent("worker"), agent("other")])
        await together(it.start(wide(3)), it.start(wide(3, "other"), "r2"))
        executor.script = succeeded
        await executor.connect()
        await it.settle()
        assert (it.status(), it.status("r2")) == ("COMPLETED", "COMPLETED")
        it.check_quiescent()


@in_virtual_time
async def test_a_wide_run_does_not_keep_others_from_their_turn():
    async with rig() as it:
        await it.start(wide(200), "wide")
        await it.start(steps(3), "narrow")
        executor = await Executor(it, max_in_flight=2).connect()
        for _ in range(8):
            executor.finish_all()
            await it.settle()
        assert it.status("narrow") == "COMPLETED"
        assert it.status("wide") == "RUNNING"


@in_virtual_time
async def test_a_run_that_made_room_does_not_take_it_before_those_that_wait():
    async with rig() as it:
        # The same executor does both kinds of work, so a run could keep its slot by asking for the other kind.
        executor = await Executor(
            it, max_in_flight=1, capabilities=[agent("worker"), agent("other")]
        ).connect()
        await it.start(steps(50), "greedy")
        await it.start(steps(2, "other"), "patient")
        for _ in range(6):
            executor.finish_all()
            await it.settle()
        assert it.status("patient") == "COMPLETED"
        assert it.status("greedy") == "RUNNING"


@in_virtual_time
async def test_queues_that_want_the_same_executor_take_turns():
    async with rig() as it:
        await it.start(wide(50), "one")
        await it.start(wide(50, "other"), "two")
        executor = await Executor(
            it, max_in_flight=1, capabilities=[agent("worker"), agent("other")]
        ).connect()
        for _ in range(9):
            executor.finish_all()
            await it.settle()
        runs = [task_id.split("/")[0] for task_id, _ in executor.received]
        assert runs == (["one", "two"] * 5)[:9]


@in_virtual_time
async def test_tasks_that_ended_while_they_waited_do_not_stand_in_front_of_others():
    async with rig() as it:
        await it.start(wide(5), "gone")
        await it.start(work(), "stays")
        await it.engine.change_run(NAMESPACE, "gone", Cancel(reason=""), None)
        assert len(it.dispatcher.waiting) == 1
        await Executor(it, script=succeeded, max_in_flight=1).connect()
        assert await it.settle("stays") == "COMPLETED"
        it.check_quiescent()


@in_virtual_time
async def test_tasks_whose_queue_limit_is_over_do_not_stand_in_front_of_others():
    async with rig() as it:
        on_error = {"condition": {"error_occurred": {}}}
        nodes = {
            "start": {},
            **{
                name: {
                    "action": {"delegate": {"agent_kind": "worker", "task_template": "go"}},
                    "limits": {"queue": "5s"},
                }
                for name in ("a", "b")
            },
            "c": {"action": {"delegate": {"agent_kind": "worker", "task_template": "go"}}},
        }
        edges = ["start > a", "start > b", ("a > c", on_error), ("b > c", on_error)]
        await it.start(graph(nodes, edges))
        await asyncio.sleep(6)
        # Two have ended, and one waits behind their entries.
        assert codes(it) == ["QUEUE_LIMIT", "QUEUE_LIMIT"]
        assert len(it.dispatcher.waiting) == 3
        await Executor(it, script=succeeded, max_in_flight=1).connect()
        assert await it.settle() == "COMPLETED"
        it.check_quiescent()


@in_virtual_time
async def test_tasks_that_wait_still_wait_once_after_their_run_was_read_again():
    async with rig() as it:
        executor = await Executor(it, max_in_flight=1).connect()
        await it.start(wide(5))
        it.store.fail_next("task_completed")
        executor.finish_all()
        await asyncio.sleep(1)
        # Its result was kept, and is recorded now; the next one has its slot.
        assert (len(executor.received), len(it.dispatcher.waiting)) == (2, 3)


@in_virtual_time
async def test_what_nobody_can_do_is_said_once_and_done_when_somebody_comes():
    async with rig() as it:
        await Executor(it, "idle", capabilities=[llm("m")]).connect()
        await it.start(work())
        await asyncio.sleep(60)
        assert it.store.kinds("r1").count("task_unclaimed") == 1
        await Executor(it, script=succeeded).connect()
        assert await it.settle() == "COMPLETED"
        assert it.store.kinds("r1").count("task_unclaimed") == 1
        it.check_quiescent()


@in_virtual_time
async def test_an_executor_that_learns_something_gets_what_waits_for_it():
    async with rig() as it:
        executor = await Executor(it, capabilities=[llm("m")], script=succeeded).connect()
        await it.start(work())
        await it.settle()
        assert not executor.received
        learned = received(hello(capabilities=[agent("worker")])).abilities
        it.registry.change(executor.seat, learned)
        assert await it.settle() == "COMPLETED"


# Limits


@in_virtual_time
async def test_an_attempt_that_takes_too_long_is_stopped_and_its_late_result_is_stale():
    async with rig() as it:
        one = await Executor(it, max_in_flight=1).connect()
        await it.start(work(limits={"run": "5s"}, retry={"first_delay": "1s"}))
        one.accept()
        await it.settle()
        (task,) = one.running.values()
        await asyncio.sleep(5.5)
        assert codes(it) == ["RUN_LIMIT"]
        assert one.cancels == [(task.task_id, 1, "RUN_LIMIT")]
        # Its slot is not free before it says so.
        await asyncio.sleep(1)
        assert one.seat.in_flight == 1
        two = await Executor(it, "e2").connect()
        await it.settle()
        assert [attempt for _, attempt in two.received] == [2]
        one.report(cancelled(task))
        two.finish_all()
        assert await it.settle() == "COMPLETED"
        assert (one.verdicts(), two.verdicts()) == (["STALE"], ["ACCEPTED"])
        assert it.hub.ended == [("1/a/t0/e0", 1, True), ("1/a/t0/e0", 2, False)]
        it.check_quiescent()


@in_virtual_time
async def test_an_attempt_that_is_not_accepted_is_withdrawn_and_given_to_another():
    async with rig() as it:
        silent = await Executor(it, max_in_flight=1).connect()
        await it.start(work())
        await it.settle()
        await Executor(it, "e2", script=succeeded).connect()
        await asyncio.sleep(11)
        assert it.status() == "COMPLETED"
        assert "did not accept it" in losses(it)[0]
        assert len(silent.cancels) == 1
        silent.finish_all()
        await it.settle()
        assert silent.verdicts() == ["STALE"]
        it.check_quiescent()


@in_virtual_time
@pytest.mark.parametrize("accepts", ["never", "before", "meanwhile"])
async def test_the_accept_limit_goes_on_when_a_run_is_folded_again(accepts):
    """What was accepted before, or while it was folded, stays so; what was not is withdrawn in time."""
    async with rig() as it:
        executor = await Executor(it, max_in_flight=2).connect()
        await it.start(wide(2))
        await it.settle()
        first, _ = executor.running.values()
        if accepts == "before":
            executor.accept()
        it.store.fail_next("task_completed")
        executor.report(succeeded(first))
        await turns(5)
        live = it.runner.live(R1)
        assert live is not None
        assert live.state is None, "it is folded again"
        if accepts == "meanwhile":
            executor.accept()
        await asyncio.sleep(9)
        assert losses(it) == []
        assert it.store.kinds("r1").count("task_completed") == 1
        await asyncio.sleep(2)
        assert len(losses(it)) == (1 if accepts == "never" else 0)


@in_virtual_time
async def test_only_who_has_an_attempt_accepts_rejects_or_shows_progress():
    async with rig() as it:
        executor = await Executor(it, max_in_flight=1).connect()
        await it.start(work())
        await it.settle()
        ((task_id, attempt),) = executor.running
        other = await Executor(it, "e2", token=b"another process.").connect()
        ref = pb.AttemptRef(task_id=task_id, attempt=attempt)
        shown = pb.AttemptProgress(
            task_id=task_id,
            attempt=attempt,
            progress=[task_pb2.TaskProgress(text=task_pb2.TaskProgress.TextDelta(text="so"))],
        )
        run = it.runner.live(R1)
        assert run is not None
        assert run.state is not None
        task = run.state.tasks["1/a/t0/e0"]
        it.dispatcher.accepted(other.seat, [ref])
        it.dispatcher.progress(other.seat, [shown])
        it.dispatcher.rejected(other.seat, ref, "NO", "not mine")
        assert not task.accepted
        assert not it.hub.transient
        assert task.status.name == "ASSIGNED"
        it.dispatcher.accepted(executor.seat, [ref])
        assert task.accepted
        it.dispatcher.progress(
            executor.seat, [shown, pb.AttemptProgress(task_id="r9/1", attempt=1)]
        )
        it.dispatcher.progress(
            executor.seat, [pb.AttemptProgress(task_id=task_id, attempt=attempt)]
        )
        assert it.hub.transient == [("1/a/t0/e0", 1, "so")]


@in_virtual_time
async def test_progress_keeps_a_stream_alive_and_silence_ends_it():
    nodes = {"a": {"action": {"llm_infer": {"use_streaming": True}}, "limits": {"idle": "5s"}}}
    async with rig() as it:
        executor = await Executor(it, capabilities=[llm("m")]).connect()
        await it.start(graph(nodes, default_model="m"))
        await it.settle()
        ((task_id, attempt),) = executor.running
        for _ in range(4):
            await asyncio.sleep(4)
            it.dispatcher.progress(
                executor.seat, [pb.AttemptProgress(task_id=task_id, attempt=attempt)]
            )
        assert not codes(it)
        await asyncio.sleep(6)
        assert codes(it) == ["IDLE_LIMIT"]


@in_virtual_time
async def test_a_rejected_attempt_is_lost_and_its_slot_is_free():
    async with rig() as it:
        executor = await Executor(it, max_in_flight=1).connect()
        await it.start(work())
        await it.settle()
        ((task_id, attempt),) = executor.running
        executor.running.clear()
        ref = pb.AttemptRef(task_id=task_id, attempt=attempt)
        it.dispatcher.rejected(executor.seat, ref, "UNKNOWN_VARIANT", "no such kind")
        await it.settle()
        assert losses(it) == ["executor e1 rejected it: UNKNOWN_VARIANT no such kind"]
        assert [number for _, number in executor.running] == [2]
        assert executor.seat.in_flight == 1


@in_virtual_time
async def test_what_loses_its_executors_again_and_again_fails():
    async with rig() as it:
        await it.start(work())
        for number in range(4):
            executor = await Executor(it, f"e{number}").connect()
            await it.settle()
            executor.leave()
            await it.settle()
        assert it.status() == "FAILED"
        assert codes(it) == ["TASK_LOST"]
        it.check_quiescent()
        assert not it.dispatcher.holdings._attempts
        assert not it.dispatcher.holdings._slots


# Cancelling


@in_virtual_time
async def test_a_cancelled_run_ends_when_its_attempts_have_reported():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(wide(2))
        await it.engine.change_run(NAMESPACE, "r1", Cancel(reason="enough"), None)
        assert await it.settle() == "STOPPING"
        assert {reason for *_, reason in executor.cancels} == {"enough"}
        one, other = executor.running.values()
        executor.report(cancelled(one))
        assert await it.settle() == "STOPPING"
        executor.report(succeeded(other))
        assert await it.settle() == "CANCELLED"
        assert executor.verdicts() == ["ACCEPTED", "ACCEPTED"]
        it.check_quiescent()


@in_virtual_time
async def test_a_cancelled_run_waits_for_its_attempts_no_longer_than_the_grace():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(work())
        await it.engine.change_run(NAMESPACE, "r1", Cancel(reason="enough"), None)
        await asyncio.sleep(9)
        assert it.status() == "STOPPING"
        await asyncio.sleep(2)
        assert it.status() == "CANCELLED"
        assert executor.seat.in_flight == 1
        executor.finish_all()
        await it.settle()
        assert executor.verdicts() == ["STALE"]
        it.check_quiescent()


@in_virtual_time
async def test_an_attempt_that_ended_before_its_assignment_was_durable_is_never_sent():
    async with rig(limits=RunLimits(cancel_grace=Span(SECOND))) as it:
        executor = await Executor(it).connect()
        it.store.journal.hold()
        starting = asyncio.gather(it.start(work()))
        await turns()
        it.runner.deliver(R1, Delivery(happened=Cancel(reason="")))
        await asyncio.sleep(2)
        it.store.journal.release()
        await starting
        assert await it.settle() == "CANCELLED"
        assert not executor.received
        it.check_quiescent()


# Sessions


@in_virtual_time
async def test_a_lost_stream_that_comes_back_in_time_loses_nothing():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(wide(3))
        await it.settle()
        executor.accept()
        executor.disconnect()
        executor.report(succeeded(next(iter(executor.running.values()))))
        await asyncio.sleep(20)
        await executor.connect()
        await it.settle()
        assert executor.verdicts() == ["ACCEPTED"]
        assert executor.seat.in_flight == 2
        executor.finish_all()
        assert await it.settle() == "COMPLETED"
        assert not losses(it)
        assert it.store.kinds("r1").count("task_completed") == 3
        it.check_quiescent()


@in_virtual_time
async def test_a_lost_stream_that_does_not_come_back_loses_all_after_the_grace():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(work())
        await it.settle()
        executor.accept()
        executor.disconnect()
        await Executor(it, "e2", script=succeeded).connect()
        await asyncio.sleep(29)
        assert it.status() == "RUNNING"
        await asyncio.sleep(2)
        assert it.status() == "COMPLETED"
        await executor.connect()
        assert not executor.running
        it.check_quiescent()


@in_virtual_time
async def test_who_comes_back_with_an_attempt_has_accepted_it():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(work())
        await it.settle()
        # What it said of it went down with its stream.
        executor.disconnect()
        await executor.connect()
        await asyncio.sleep(60)
        assert not losses(it)


@in_virtual_time
async def test_what_an_executor_that_comes_back_does_not_list_is_lost_at_once():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(wide(2))
        await it.settle()
        executor.disconnect()
        executor.running.popitem()
        await executor.connect()
        await it.settle()
        assert losses(it) == ["executor e1 came back without it"]
        assert len(executor.running) == 2
        executor.finish_all()
        assert await it.settle() == "COMPLETED"
        it.check_quiescent()


@in_virtual_time
async def test_another_instance_has_lost_what_the_one_before_it_had():
    async with rig() as it:
        old = await Executor(it).connect()
        await it.start(work())
        await it.settle()
        new = await Executor(it, token=b"another process.").connect()
        await it.settle()
        assert old.session is not None
        assert old.session.closed_with == "SESSION_SUPERSEDED"
        assert [attempt for _, attempt in new.received] == [2]
        # What the old one still reports is stale.
        it.dispatcher.outcomes(old.seat, [succeeded(task) for task in old.running.values()])
        new.finish_all()
        assert await it.settle() == "COMPLETED"
        assert it.store.kinds("r1").count("task_completed") == 1
        it.check_quiescent()


@in_virtual_time
async def test_a_result_that_was_recorded_is_not_wanted_again():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(steps(2))
        await it.settle()
        it.store.journal.hold()
        executor.finish_all()
        await turns()
        executor.disconnect()
        # It comes back before its result is durable, and is welcomed when it is.
        async with asyncio.TaskGroup() as group:
            group.create_task(executor.connect())
            await turns()
            it.store.journal.release()
        assert not executor.unacknowledged
        assert not executor.acks
        await it.settle()
        executor.finish_all()
        assert await it.settle() == "COMPLETED"
        it.check_quiescent()


@in_virtual_time
async def test_what_was_assigned_to_a_session_that_ended_meanwhile_is_not_sent_to_the_next():
    async with rig() as it:
        executor = await Executor(it, max_in_flight=1).connect()
        it.store.journal.hold()
        starting = asyncio.gather(it.start(work()))
        await turns()
        executor.disconnect()
        await executor.connect()
        it.store.journal.release()
        await starting
        await it.settle()
        assert [attempt for _, attempt in executor.received] == [2]
        assert executor.seat.in_flight == 1
        executor.finish_all()
        assert await it.settle() == "COMPLETED"
        it.check_quiescent()


@in_virtual_time
@pytest.mark.parametrize("end", ["leave", "replace"])
async def test_what_was_assigned_to_an_instance_that_is_gone_is_given_to_another(end):
    async with rig() as it:
        executor = await Executor(it).connect()
        it.store.journal.hold()
        starting = asyncio.gather(it.start(work()))
        await turns()
        if end == "leave":
            executor.leave()
            await Executor(it, "e2", script=succeeded).connect()
        else:
            await Executor(it, token=b"another process.", script=succeeded).connect()
        it.store.journal.release()
        await starting
        assert await it.settle() == "COMPLETED"
        it.check_quiescent()


@in_virtual_time
async def test_an_older_session_that_is_answered_late_takes_nothing_from_the_newer():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(work())
        await it.settle()
        # The run is read again, so that the first hello has to wait for it.
        it.store.fail_next("run_stopping")
        it.store.runs.unreadable = True
        it.runner.deliver(R1, Delivery(happened=Cancel(reason="")))
        await turns()
        executor.disconnect()
        async with asyncio.TaskGroup() as group:
            group.create_task(executor.connect())
            await turns()
            first = executor.session
            group.create_task(executor.connect())
            await turns()
            it.store.runs.unreadable = False
        assert first is not None
        assert first.is_over
        assert executor.seat.in_flight == 1
        executor.finish_all()
        assert await it.settle() == "COMPLETED"
        it.check_quiescent()


@in_virtual_time
async def test_a_session_that_ends_while_it_is_answered_leaves_nothing_behind():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(work())
        await it.settle()
        executor.disconnect()
        it.store.journal.hold()
        it.runner.deliver(R1, Delivery(happened=Cancel(reason="")))
        async with asyncio.TaskGroup() as group:
            group.create_task(executor.connect())
            await turns()
            executor.disconnect()
            it.store.journal.release()
        await asyncio.sleep(45)
        assert it.status() == "CANCELLED"
        assert not it.dispatcher.holdings._slots
        it.check_quiescent()


@in_virtual_time
async def test_an_attempt_that_is_listed_twice_has_one_slot():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(work())
        await it.settle()
        executor.disconnect()
        refs = [pb.AttemptRef(task_id="r1/1/a/t0/e0", attempt=1)] * 2
        joined = await executor.connect()
        wanted = await it.dispatcher.joined(joined.seat, refs, refs)
        assert (len(wanted.attempts), len(wanted.results)) == (1, 0)


@in_virtual_time
async def test_what_should_be_stopped_is_said_again_to_who_comes_back():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(work())
        await it.settle()
        executor.disconnect()
        await it.engine.change_run(NAMESPACE, "r1", Cancel(reason="enough"), None)
        assert not executor.cancels
        await executor.connect()
        assert [reason for *_, reason in executor.cancels] == ["enough"]
        executor.finish_all()
        assert await it.settle() == "CANCELLED"
        it.check_quiescent()


@in_virtual_time
async def test_an_executor_with_an_attempt_of_a_quarantined_run_can_connect():
    store = FaultyStore()
    async with rig(store) as it:
        executor = await Executor(it).connect()
        await it.start(work())
        await it.start(work(), "r2")
        await it.settle()
        it.crash()
    store.corrupt("r1")
    async with rig(store) as it:
        executor.rig = it
        await executor.connect()
        assert [task_id.split("/")[0] for task_id, _ in executor.running] == ["r2"]
        executor.finish_all()
        assert await it.settle("r2") == "COMPLETED"
        it.check_quiescent()


@in_virtual_time
async def test_executors_of_two_namespaces_with_one_name_and_token_do_not_disturb_each_other():
    async with rig() as it:
        one = await Executor(it, max_in_flight=1).connect()
        await it.start(work())
        await it.settle()
        other = await Executor(it, namespace="elsewhere").connect()
        assert len(it.dispatcher.holdings) == 1
        other.leave()
        assert len(it.dispatcher.holdings) == 1
        await it.start(work(), "r2")
        await it.settle()
        assert len(one.running) == 1
        one.script = succeeded
        one.finish_all()
        assert await it.settle("r2") == "COMPLETED"
        it.check_quiescent()


@in_virtual_time
async def test_results_for_runs_that_nobody_knows_make_nobody_wait():
    """20,000 in one frame: a few are looked up at a time, and a run that somebody asks for comes before all of them."""
    async with rig() as it:
        await it.start(question(), "asked")
        await it.settle("asked")
        assert it.runner.live(RunKey(NAMESPACE, "asked")) is None
        executor = await Executor(it, capabilities=[agent("other")]).connect()
        unknown = [
            pb.AttemptOutcome(
                task_id=f"r{number}/1/a/t0/e0", attempt=1, succeeded=task_pb2.TaskResult()
            )
            for number in range(20_000)
        ]
        it.dispatcher.outcomes(executor.seat, unknown)
        assert it.runner.live_count <= STRAYS_AT_ONCE
        read = it.store.runs.reads
        run = await it.engine.change_run(NAMESPACE, "asked", Cancel(reason=""), None)
        assert run.run_id == "asked"
        assert it.store.runs.reads - read <= STRAYS_AT_ONCE + MAX_LOADS
        while len(executor.acks) < len(unknown):
            assert it.runner.live_count <= 2 * STRAYS_AT_ONCE + MAX_LOADS
            await asyncio.sleep(STRAYS_PERIOD_S)
        assert {verdict for _, _, verdict in executor.acks} == {pb.ACK_VERDICT_STALE}
        assert [task_id for task_id, _, _ in executor.acks] == [o.task_id for o in unknown]
        it.check_quiescent()


@in_virtual_time
async def test_verdicts_are_counted():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(work())
        await it.settle()
        (task,) = executor.running.values()
        executor.report(succeeded(task))
        await it.settle()
        executor.report(succeeded(task))
        executor.report(failed(task))
        await it.settle()
        counts = it.dispatcher.counts
        assert counts.sent == 1
        assert counts.verdicts == {
            pb.ACK_VERDICT_ACCEPTED: 1,
            pb.ACK_VERDICT_DUPLICATE: 1,
            pb.ACK_VERDICT_STALE: 1,
            pb.ACK_VERDICT_CONFLICT: 0,
        }


# Everything at once


@given(seed=st.integers(0, 10_000))
@settings(max_examples=60)
def test_whatever_happens_no_slot_is_taken_twice_and_none_leaks(seed):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(_storm(random.Random(seed)))


async def _storm(chance: random.Random) -> None:
    store = FaultyStore()
    store.journal.chance = chance
    async with rig(store, lost_grace=Span(5 * SECOND)) as it:
        executors = [
            Executor(
                it,
                f"e{number}",
                token=f"token of e{number} here".encode(),
                capabilities=[agent("worker"), agent("other")],
                max_in_flight=chance.randint(1, 3),
            )
            for number in range(3)
        ]
        runs = []
        for number in range(chance.randint(2, 5)):
            limits = {"run": f"{chance.randint(1, 6)}s", "queue": f"{chance.randint(5, 30)}s"}
            kind = chance.choice(["worker", "other"])
            shape = chance.choice([steps(3, kind), wide(chance.randint(1, 6), kind, limits=limits)])
            runs.append(f"r{number}")
            try:
                await it.start(shape, runs[-1])
            except Refused:
                runs.pop()
        for _ in range(30):
            await _something(chance, it, executors, runs)
            await asyncio.sleep(chance.choice([0, 0, 0.01, 0.5]))
        await _calm_down(it, executors, runs)
        assert {it.status(run_id) for run_id in runs} <= {"COMPLETED", "FAILED", "CANCELLED"}
        it.check_quiescent()
        for executor in executors:
            executor.leave()
        assert not it.dispatcher.holdings._slots
        assert not it.dispatcher.holdings._attempts


async def _something(
    chance: random.Random, it: Rig, executors: list[Executor], runs: list[str]
) -> None:
    executor = chance.choice(executors)
    is_there = executor.session is not None and not executor.session.is_over
    task = chance.choice(list(executor.running.values())) if executor.running else None
    match chance.randint(0, 9):
        case 0 if is_there:
            executor.disconnect()
        case 0 | 1:
            if chance.random() < 0.2:
                executor.token = chance.randbytes(16)
                executor.running.clear()
                executor.unacknowledged.clear()
            if chance.random() < 0.2 and executor.running:
                executor.running.popitem()
            it.spawn(_quietly(executor.connect()))
        case 2 if is_there:
            executor.leave()
            executor.running.clear()
            executor.unacknowledged.clear()
        case 3:
            kinds = ["", "task_completed", "task_assigned", "task_lost", "task_scheduled"]
            it.store.fail_next(chance.choice(kinds), times=chance.randint(1, 2))
        case 4 if runs and chance.random() < 0.3:
            cancelling = it.engine.change_run(
                NAMESPACE, chance.choice(runs), Cancel(reason=""), None
            )
            it.spawn(_quietly(cancelling))
        case 5 if is_there and task is not None:
            executor.running.pop((task.task_id, task.attempt))
            ref = pb.AttemptRef(task_id=task.task_id, attempt=task.attempt)
            it.dispatcher.rejected(executor.seat, ref, "NO", "")
        case _ if task is not None:
            executor.report(chance.choice([succeeded, succeeded, failed, cancelled])(task))
        case _:
            pass


async def _quietly(call) -> None:
    with contextlib.suppress(Refused):
        await call


async def _calm_down(it: Rig, executors: list[Executor], runs: list[str]) -> None:
    """Let everything end: the store works, and every executor is there and answers."""
    it.store.journal.faults.clear()
    it.store.journal.chance = None
    await asyncio.sleep(10)
    for executor in executors:
        executor.script = succeeded
        executor.running.clear()
        await executor.connect()
    for _ in range(40):
        await asyncio.sleep(5)
        for executor in executors:
            executor.finish_all()
    for executor in executors:
        assert not executor.unacknowledged
