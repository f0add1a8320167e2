"""Where a retry begins."""

from __future__ import annotations

import pytest

from stepgraph.v1 import event_pb2, run_pb2
from stepgraph_server.engine.retry_point import find_retry_point
from stepgraph_server.storage.records import StoredBatch


def scheduled(task_id):
    return {"task_scheduled": {"task_id": task_id}}


def completed(task_id):
    return {"task_completed": {"task_id": task_id}}


def failed(task_id, code="BOOM", **more):
    return {"task_failed": {"task_id": task_id, "failure": {"code": code}, **more}}


FAILS = {"run_failed": {}}
STOPS = {"run_stopping": {"outcome": run_pb2.RUN_STATUS_FAILED}}


async def found(*appends):
    """Return where a retry begins, and which results it takes along."""
    stored, number = [], 0
    for append in appends:
        events = [
            event_pb2.RunEvent(sequence=number + index, **event)
            for index, event in enumerate(append, 1)
        ]
        data = event_pb2.EventBatch(events=events).SerializeToString()
        stored.append(
            StoredBatch(
                first_sequence=number + 1,
                last_sequence=number + len(append),
                position=0,
                batch=data,
            )
        )
        number += len(append)

    async def batches(after):
        for batch in stored:
            if batch.first_sequence > after:
                yield batch

    point = await find_retry_point(batches)
    return point.sequence, [task_id for task_id, _ in point.results]


async def test_it_begins_before_the_append_that_failed_the_run():
    """What was recorded while the run stopped is kept."""
    assert await found(
        [scheduled("1/a/t0/e0"), scheduled("1/b/t0/e0")],
        [failed("1/a/t0/e0"), STOPS],
        [completed("1/b/t0/e0")],
        [FAILS],
    ) == (2, ["1/b/t0/e0"])


async def test_a_program_that_failed_with_its_effect_has_the_effect_tried_again():
    """Told the same again, it would fail the same again. What ended since is kept."""
    assert await found(
        [scheduled("1/p/t1/e0"), scheduled("1/p/t1/e1")],
        [failed("1/p/t1/e0", retry_time={"seconds": 1})],
        [failed("1/p/t1/e0")],
        [completed("1/p/t1/e1"), scheduled("1/p/t2/poll")],
        [failed("1/p/t2/poll"), FAILS],
    ) == (3, ["1/p/t1/e1"])


async def test_the_last_effect_with_the_code_of_the_program_is_meant():
    """The program had taken the first failure."""
    assert await found(
        [scheduled("1/p/t0/e0")],
        [failed("1/p/t0/e0"), scheduled("1/p/t1/poll")],
        [completed("1/p/t1/poll"), scheduled("1/p/t1/e0")],
        [failed("1/p/t1/e0"), scheduled("1/p/t2/poll")],
        [failed("1/p/t2/poll"), FAILS],
    ) == (5, [])


async def test_effects_of_spawned_work_are_tried_again_too():
    """Its program fails, and with it the node that spawned it."""
    assert await found(
        [scheduled("1/p/t0/s0/t0/e0"), scheduled("1/p/t0/s1/t0/e0")],
        [failed("1/p/t0/s0/t0/e0"), scheduled("1/p/t0/s0/t1/poll")],
        [failed("1/p/t0/s0/t1/poll"), FAILS],
    ) == (2, [])


@pytest.mark.parametrize(
    ("appends", "sequence"),
    [
        # It failed by itself.
        (
            [
                [scheduled("1/p/t0/e0")],
                [failed("1/p/t0/e0", "OTHER"), scheduled("1/p/t1/poll")],
                [failed("1/p/t1/poll"), FAILS],
            ],
            3,
        ),
        # What failed belongs to another node.
        (
            [
                [scheduled("1/q/t0/e0"), scheduled("1/p/t0/poll")],
                [failed("1/q/t0/e0")],
                [failed("1/p/t0/poll"), FAILS],
            ],
            3,
        ),
        # Something that began since has finished: it would be done again.
        (
            [
                [scheduled("1/p/t0/e0"), scheduled("1/q/t0/e0")],
                [failed("1/p/t0/e0"), scheduled("1/p/t1/poll")],
                [completed("1/q/t0/e0"), scheduled("1/q/t1/poll")],
                [completed("1/q/t1/poll")],
                [failed("1/p/t1/poll"), FAILS],
            ],
            7,
        ),
        # Somebody has answered since, and would be asked again.
        (
            [
                [scheduled("1/p/t0/e0")],
                [failed("1/p/t0/e0"), scheduled("1/p/t1/poll")],
                [{"interrupt_answered": {"interrupt_id": "q"}}],
                [failed("1/p/t1/poll"), FAILS],
            ],
            4,
        ),
        # A signal came since, and would be lost.
        (
            [
                [scheduled("1/p/t0/e0")],
                [failed("1/p/t0/e0"), scheduled("1/p/t1/poll")],
                [{"signal_received": {}}],
                [failed("1/p/t1/poll"), FAILS],
            ],
            4,
        ),
    ],
    ids=["by itself", "another node", "finished since", "answered since", "signalled since"],
)
async def test_nothing_that_finished_is_repeated_for_an_effect(appends, sequence):
    """Then it begins before the program's own failure."""
    assert (await found(*appends))[0] == sequence
