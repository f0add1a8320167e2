"""Frames that are spliced are what serializing them would give."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import task_pb2
from stepgraph_server.executors.batches import (
    MAX_BATCH_BYTES,
    frames_of,
    serialize_ack,
)

ATTEMPTS = st.integers(min_value=1, max_value=2**32 - 1)
VERDICTS = st.sampled_from([verdict for verdict in pb.AckVerdict.values() if verdict])


@given(st.lists(st.tuples(st.text(min_size=1, max_size=300), ATTEMPTS), min_size=1))
def test_spliced_tasks_are_the_tasks(items):
    tasks = [task_pb2.Task(task_id=task_id, attempt=attempt) for task_id, attempt in items]
    (frame,) = frames_of([], [task.SerializeToString() for task in tasks])
    expected = pb.ConnectResponse(tasks=pb.Tasks(tasks=tasks))
    assert frame == expected.SerializeToString()


@given(st.lists(st.tuples(st.text(min_size=1, max_size=300), ATTEMPTS, VERDICTS), min_size=1))
def test_spliced_acks_are_the_acks(items):
    acks = [pb.Ack(task_id=name, attempt=number, verdict=said) for name, number, said in items]
    (frame,) = frames_of([serialize_ack(*item) for item in items], [])
    assert frame == pb.ConnectResponse(acks=pb.Acks(acks=acks)).SerializeToString()


def test_nothing_makes_no_frame():
    assert list(frames_of([], [])) == []


def test_acks_travel_with_tasks_and_are_cut_with_them():
    acks = [(f"r/{index}" + "x" * 400, 1, pb.ACK_VERDICT_ACCEPTED) for index in range(3_000)]
    task = task_pb2.Task(task_id="r/t", idempotency_key="x" * 1_000).SerializeToString()
    frames = [
        pb.ConnectResponse.FromString(frame).tasks
        for frame in frames_of([serialize_ack(*ack) for ack in acks], [task, task])
    ]
    assert [len(frame.tasks) for frame in frames] == [0, 2]
    assert all(frame.ByteSize() <= MAX_BATCH_BYTES for frame in frames)
    travelled = [ack for frame in frames for ack in frame.acks]
    assert [(ack.task_id, ack.attempt, ack.verdict) for ack in travelled] == acks


def test_batches_are_cut_below_the_limit_and_in_order():
    tasks = [
        task_pb2.Task(task_id=f"r/{index}", idempotency_key="x" * size).SerializeToString()
        for index, size in enumerate([400_000, 400_000, 400_000, 10, 3_000_000, 10])
    ]
    frames = list(frames_of([], tasks))
    ids = [
        [task.task_id for task in pb.ConnectResponse.FromString(frame).tasks.tasks]
        for frame in frames
    ]
    assert ids == [["r/0", "r/1"], ["r/2", "r/3"], ["r/4"], ["r/5"]]
    assert [len(frame) > MAX_BATCH_BYTES + 10 for frame in frames] == [False, False, True, False]
