"""The one loop: nothing before it is durable, and nothing lost when that fails."""

from __future__ import annotations

import asyncio
import random

import pytest

from stepgraph_server.core.errors import Refused
from stepgraph_server.core.inputs import Cancel, RunLimits
from stepgraph_server.engine.live import Delivery, FutureReply, LiveRun
from stepgraph_server.storage.errors import JournalUnavailable, SequenceConflict
from stepgraph_server.storage.records import RunKey
from tests.support.engine_executor import Executor, succeeded
from tests.support.engine_rig import (
    NAMESPACE,
    question,
    reason,
    rig,
    steps,
    together,
    wide,
    work,
)
from tests.support.engine_store import FaultyStore, unavailable
from tests.support.engine_time import in_virtual_time, turns
from tests.support.graphs import condition, graph

R1 = RunKey(NAMESPACE, "r1")


def loop_graph(rounds: int):
    """Build a graph of one node that goes round without anybody's help."""
    return graph(
        {"a": {}, "end": {}},
        [
            condition("a > a", "expression", cel=f"iterations < {rounds}"),
            condition("a > end", "otherwise"),
        ],
        terminal_nodes=["end"],
        max_iterations=rounds + 10,
    )


# Durable first


@in_virtual_time
async def test_nothing_is_sent_acknowledged_or_published_before_it_is_durable():
    async with rig() as it:
        executor = await Executor(it, script=succeeded).connect()
        it.store.journal.hold()
        starting = asyncio.gather(it.start(steps(3)))
        for _ in range(5):
            before = (len(executor.received), len(executor.acks), len(it.hub.batches))
            await turns()
            assert before == (len(executor.received), len(executor.acks), len(it.hub.batches))
            it.store.journal.release()
            it.store.journal.hold()
            await turns()
        await starting
        it.store.journal.release()
        assert await it.settle() == "COMPLETED"
        # Each append was published once, in order, without a gap.
        firsts = [first for _, first, _, _ in it.hub.batches]
        lasts = [last for _, _, last, _ in it.hub.batches]
        assert firsts == [1, *(last + 1 for last in lasts[:-1])]
        assert [terminal for *_, terminal in it.hub.batches] == [False] * (len(lasts) - 1) + [True]


@in_virtual_time
async def test_a_node_of_the_common_path_costs_one_append():
    async with rig() as it:
        await Executor(it, script=succeeded).connect()
        await it.start(steps(10))
        assert await it.settle() == "COMPLETED"
        assert it.store.journal.submitted == 1 + 10


@in_virtual_time
async def test_outcomes_of_one_frame_are_one_append_of_each_run():
    async with rig() as it:
        executor = await Executor(it, max_in_flight=100).connect()
        for number in range(3):
            await it.start(wide(10), f"r{number}")
        before = it.store.journal.submitted
        executor.finish_all()
        await it.settle()
        assert it.store.journal.submitted == before + 3
        it.check_quiescent()


@in_virtual_time
async def test_a_frame_of_acknowledgements_is_sent_once_for_each_commit(monkeypatch):
    async with rig() as it:
        executor = await Executor(it, max_in_flight=100).connect()
        for number in range(3):
            await it.start(work(), f"r{number}")
        assert executor.session is not None
        frames: list[int] = []
        monkeypatch.setattr(executor.session, "send_acks", lambda acks: frames.append(len(acks)))
        executor.finish_all()
        await it.settle()
        assert frames == [3]


# Appends that fail


FAILURES = {
    "unavailable": unavailable(),
    "conflict": SequenceConflict(R1, 4, 7),
}


@in_virtual_time
@pytest.mark.parametrize("error", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("kind", ["task_completed", "task_assigned"])
async def test_an_append_that_fails_loses_nothing(kind, times, error):
    async with rig() as it:
        executor = Executor(it, script=succeeded, max_in_flight=2)
        await it.start(wide(5))
        it.store.fail_next(kind, error, times)
        await executor.connect()
        await asyncio.sleep(20)
        assert it.status() == "COMPLETED"
        assert sorted(executor.received) == sorted(set(executor.received))
        assert it.store.kinds("r1").count("task_completed") == 5
        assert executor.verdicts() == ["ACCEPTED"] * 5
        assert not executor.unacknowledged
        it.check_quiescent()


@in_virtual_time
async def test_a_failure_in_the_middle_of_a_pipeline_fails_what_was_built_on_it():
    async with rig() as it:
        executor = await Executor(it, max_in_flight=10).connect()
        await it.start(wide(4))
        it.store.journal.hold()
        for task in list(executor.running.values()):
            executor.report(succeeded(task))
        await turns()
        left = [1]

        def second_fails(append):
            # Four appends wait; the second one is refused, and the third and fourth stand on it.
            left[0] += 1
            return unavailable() if left[0] == 3 else None

        it.store.journal.faults.append(second_fails)
        it.store.journal.release()
        await asyncio.sleep(10)
        assert it.status() == "COMPLETED"
        assert executor.verdicts() == ["ACCEPTED"] * 4
        assert it.store.kinds("r1").count("task_completed") == 4
        it.check_quiescent()


@in_virtual_time
async def test_callers_hear_that_the_journal_can_not_be_written():
    async with rig() as it:
        await it.start(question())
        await it.start(work(), "r2")
        it.store.journal.unavailable_because = "the disk is full"
        cancelled = await together(
            it.engine.change_run(NAMESPACE, "r1", Cancel(reason=""), None),
            it.engine.change_run(NAMESPACE, "r2", Cancel(reason=""), None),
            it.engine.change_run(NAMESPACE, "r2", Cancel(reason=""), None),
        )
        assert [reason(result) for result in cancelled] == ["JOURNAL_UNAVAILABLE"] * 3
        it.store.journal.unavailable_because = ""
        await asyncio.sleep(10)
        assert it.status("r2") == "RUNNING"
        await it.engine.change_run(NAMESPACE, "r1", Cancel(reason=""), None)
        await it.engine.change_run(NAMESPACE, "r2", Cancel(reason=""), None)
        it.check_quiescent()


@in_virtual_time
async def test_what_executors_report_while_nothing_can_be_written_is_kept():
    async with rig() as it:
        executor = await Executor(it, script=succeeded).connect()
        it.store.journal.hold()
        starting = asyncio.gather(it.start(steps(3)))
        await turns()
        it.store.journal.release()
        it.store.journal.unavailable_because = "the disk is full"
        await starting
        commits = it.store.journal.commits
        await asyncio.sleep(60)
        # It is tried again, but not all the time.
        assert commits + 5 < it.store.journal.commits < commits + 30
        assert it.status() == "RUNNING"
        assert not executor.acks
        it.store.journal.unavailable_because = ""
        await asyncio.sleep(10)
        assert it.status() == "COMPLETED"
        assert executor.verdicts() == ["ACCEPTED"] * 3
        it.check_quiescent()


@in_virtual_time
async def test_while_a_run_can_not_be_read_callers_are_turned_away_and_results_kept():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(work())
        it.store.fail_next("task_completed")
        it.store.runs.unreadable = True
        executor.finish_all()
        await turns()
        waiter: asyncio.Future[LiveRun] = asyncio.get_running_loop().create_future()
        reply = FutureReply(waiter, lambda run: run)
        it.runner.deliver(R1, Delivery(happened=Cancel(reason=""), reply=reply))
        with pytest.raises(JournalUnavailable):
            await waiter
        it.store.runs.unreadable = False
        await asyncio.sleep(10)
        assert it.status() == "COMPLETED"
        assert executor.verdicts() == ["ACCEPTED"]
        it.check_quiescent()


@in_virtual_time
async def test_slots_that_were_reserved_for_a_failed_append_are_free_again():
    async with rig() as it:
        executor = await Executor(it, max_in_flight=2).connect()
        it.store.journal.unavailable_because = "the disk is full"
        with pytest.raises(Refused):
            await it.start(wide(5))
        assert executor.seat.in_flight == 0
        it.check_quiescent()


@in_virtual_time
async def test_commits_in_parts_and_in_another_order_change_nothing():
    store = FaultyStore()
    store.journal.chance = random.Random(7)
    async with rig(store) as it:
        await Executor(it, script=succeeded, max_in_flight=3).connect()
        await together(*(it.start(steps(4), f"r{number}") for number in range(10)))
        store.fail_next("task_completed", times=3)
        await asyncio.sleep(60)
        assert {it.status(f"r{number}") for number in range(10)} == {"COMPLETED"}
        it.check_quiescent()


# Turns


@in_virtual_time
async def test_a_run_that_goes_on_by_itself_lets_others_have_their_turn():
    async with rig(limits=RunLimits(max_supersteps_per_decision=4)) as it:
        executor = await Executor(it).connect()
        await it.start(loop_graph(60))
        await it.start(work(), "r2")
        await turns(6)
        assert executor.received
        assert it.status() == "RUNNING"
        await turns(200)
        assert it.status() == "COMPLETED"


@in_virtual_time
async def test_a_turn_that_comes_after_the_end_reads_nothing():
    async with rig(limits=RunLimits(max_supersteps_per_decision=1)) as it:
        it.store.journal.hold()
        starting = asyncio.gather(it.start(loop_graph(5)))
        await turns()
        it.runner.deliver(R1, Delivery(happened=Cancel(reason="")))
        it.store.journal.release()
        await starting
        reads = it.store.runs.reads
        assert await it.settle() == "CANCELLED"
        assert it.store.runs.reads == reads
        it.check_quiescent()


# Memory


@in_virtual_time
async def test_a_run_that_ended_is_not_read_again_for_its_timers():
    async with rig() as it:
        await Executor(it, script=succeeded).connect()
        await it.start(steps(3), time_limit={"seconds": 1_000})
        assert await it.settle() == "COMPLETED"
        reads = it.store.runs.reads
        await asyncio.sleep(2_000)
        assert it.store.runs.reads == reads
        assert len(it.runner.timers) == 0


@in_virtual_time
async def test_a_run_that_waits_for_people_is_forgotten_until_something_happens():
    async with rig() as it:
        await Executor(it, script=succeeded).connect()
        nodes = {
            "a": {"action": {"delegate": {"agent_kind": "worker", "task_template": "go"}}},
            "b": {"interrupt": True},
        }
        await it.start(graph(nodes, ["a > b"]))
        assert await it.settle() == "SUSPENDED"
        assert it.runner.live_count == 0
        reads = it.store.runs.reads
        await asyncio.sleep(3_600)
        assert it.store.runs.reads == reads
        run = await it.runner.settled(R1)
        assert run.state is not None
        assert it.runner.live_count == 0


@in_virtual_time
async def test_a_run_with_something_under_way_is_not_forgotten():
    async with rig() as it:
        await it.start(question())
        assert it.runner.at_rest
        it.store.journal.hold()
        cancelling = asyncio.gather(it.engine.change_run(NAMESPACE, "r1", Cancel(reason=""), None))
        await turns()
        assert it.runner.live_count == 1
        assert not it.runner.at_rest
        it.store.journal.release()
        await cancelling
        assert it.runner.live_count == 0
        assert it.runner.at_rest


@in_virtual_time
async def test_a_late_result_of_a_run_that_ended_is_stale_and_the_same_again_a_duplicate():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(steps(1))
        (task,) = executor.running.values()
        executor.report(succeeded(task))
        assert await it.settle() == "COMPLETED"
        executor.report(succeeded(task))
        await it.settle()
        executor.report(succeeded(task, "something else"))
        await it.settle()
        executor.report(succeeded(type(task)(task_id="nowhere/1", attempt=1)))
        await it.settle()
        assert executor.verdicts() == ["ACCEPTED", "DUPLICATE", "CONFLICT", "STALE"]
        it.check_quiescent()


# Closing


@in_virtual_time
async def test_closing_turns_away_who_waits_and_writes_what_was_decided():
    store = FaultyStore()
    async with rig(store) as it:
        executor = await Executor(it).connect()
        await it.start(work())
        await it.start(question(), "asks")
        store.runs.unreadable = True
        waiting = asyncio.gather(
            it.runner.settled(RunKey(NAMESPACE, "asks")), return_exceptions=True
        )
        executor.finish_all()
        await asyncio.sleep(0)
        it.runner.close()
        (turned_away,) = await waiting
        assert isinstance(turned_away, JournalUnavailable)
        with pytest.raises(Refused, match="JOURNAL_UNAVAILABLE"):
            await it.start(work(), "late")
        with pytest.raises(JournalUnavailable):
            await it.runner.settled(RunKey(NAMESPACE, "late"))
        it.runner.deliver(RunKey(NAMESPACE, "late"), Delivery(happened=Cancel(reason="")))
        store.runs.unreadable = False
    assert store.kinds("r1")[-1] == "run_completed"


@in_virtual_time
async def test_an_append_that_fails_while_closing_begins_nothing():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(work())
        it.store.journal.unavailable_because = "the disk is full"
        executor.finish_all()
        it.runner.close()
        await asyncio.sleep(10)
        assert it.runner.live_count == 0
        assert not executor.acks
