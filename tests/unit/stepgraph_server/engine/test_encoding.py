"""Decisions as the journal stores them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2, failure_pb2, interrupt_pb2, state_pb2
from stepgraph_server.core.inputs import Cancel
from stepgraph_server.core.instants import Instant, to_timestamp
from stepgraph_server.storage.records import RunKey
from tests.support.engine_executor import Executor, failed
from tests.support.engine_rig import NAMESPACE, question, rig, work
from tests.support.engine_time import in_virtual_time

if TYPE_CHECKING:
    from tests.support.engine_store import FaultyStore

R1 = RunKey(NAMESPACE, "r1")


def batches(store: FaultyStore) -> list[event_pb2.EventBatch]:
    return [
        event_pb2.EventBatch.FromString(stored.batch) for stored in store.runs.by_key[R1].batches
    ]


@in_virtual_time
async def test_a_batch_has_the_events_of_one_decision_in_order():
    async with rig() as it:
        await Executor(it).connect()
        await it.start(work())
        (batch,) = batches(it.store)
        assert [event.sequence for event in batch.events] == list(range(1, len(batch.events) + 1))
        progress = it.store.runs.by_key[R1].record.progress
        assert progress.last_sequence == len(batch.events)
        # The accept limit comes first.
        assert progress.next_due == it.clock.now() + 10_000_000


@in_virtual_time
async def test_a_run_that_ends_has_its_ending_in_the_same_append():
    async with rig() as it:
        await Executor(it, script=failed).connect()
        await it.start(work(retry={"max_tries": 1}))
        await it.settle()
        record = it.store.runs.by_key[R1].record
        assert record.ending is not None
        assert record.ending.end_time == it.clock.now()
        assert failure_pb2.Failure.FromString(record.ending.failure).code == "BROKEN"
        assert state_pb2.GraphExecutionResult.FromString(record.ending.result).iterations == 1
        assert record.progress.next_due is None


@in_virtual_time
async def test_questions_are_stored_as_they_are_after_the_append():
    async with rig() as it:
        for run_id, after in (("r1", "answer"), ("r2", "cancel")):
            await it.start(question(), run_id)
            (row, _), *_ = await it.store.interrupts.list(NAMESPACE, run_id, None, 0, None, 9)
            assert row.status == interrupt_pb2.INTERRUPT_STATUS_OPEN
            assert to_timestamp(Instant(row.open_time)) == to_timestamp(it.clock.now())
            if after == "answer":
                proceed = interrupt_pb2.InterruptAnswer(
                    proceed=interrupt_pb2.InterruptAnswer.Proceed()
                )
                await it.engine.answer(NAMESPACE, row.interrupt_id, proceed, "me", None)
                expected = interrupt_pb2.INTERRUPT_STATUS_ANSWERED
            else:
                await it.engine.change_run(NAMESPACE, run_id, Cancel(reason=""), None)
                expected = interrupt_pb2.INTERRUPT_STATUS_CLOSED
            (row, key), *_ = await it.store.interrupts.list(NAMESPACE, run_id, None, 0, None, 9)
            assert (row.status, key.run_id) == (expected, run_id)
            assert interrupt_pb2.Interrupt.FromString(row.question).status == expected


@in_virtual_time
async def test_tokens_are_counted_in_the_row():
    async with rig() as it:

        def with_usage(task):
            outcome = failed(task)
            outcome.failed.usage.input_tokens = 3
            outcome.failed.usage.output_tokens = 4
            return outcome

        await Executor(it, script=with_usage).connect()
        await it.start(work(retry={"max_tries": 1}))
        await it.settle()
        run = it.store.runs.by_key[R1].record.to_run()
        assert (run.usage.input_tokens, run.usage.output_tokens) == (3, 4)
