"""Splicing gives what serializing would."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph_client import _wire

REFS = st.lists(st.tuples(st.text(max_size=300), st.integers(0, 2**32 - 1)))


@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_a_varint_is_read_back(number):
    data = _wire.number_tag(pb.Ping, "nonce") + _wire.varint(number)
    assert pb.Ping.FromString(data).nonce == number


@given(REFS)
def test_a_spliced_frame_is_the_frame(items):
    refs = [pb.AttemptRef(task_id=name, attempt=number) for name, number in items]
    body = _wire.repeated(
        _wire.tag(pb.Accepted, "attempts"), [ref.SerializeToString() for ref in refs]
    )
    frame = _wire.delimited(_wire.tag(pb.ConnectRequest, "accepted"), body)
    expected = pb.ConnectRequest(accepted=pb.Accepted(attempts=refs))
    assert frame == expected.SerializeToString()


@given(st.lists(st.integers(0, 40).map(bytes)), st.integers(1, 60))
def test_batches_keep_order_and_the_limit(items, limit):
    batches = list(_wire.batches(items, limit))
    assert [item for batch in batches for item in batch] == items
    for batch in batches:
        assert len(batch) == 1 or len(_wire.repeated(b"\n", batch)) <= limit


def test_no_items_are_no_batch():
    assert list(_wire.batches([], 10)) == []
