"""Spliced responses are the same bytes that protobuf would write."""

from __future__ import annotations

import pytest

from stepgraph.v1 import run_service_pb2
from stepgraph_server.api.splicing import spliced

BATCHES = [
    run_service_pb2.WatchBatch(run_id="r1", events=[{"sequence": 1}, {"sequence": 2}]),
    run_service_pb2.WatchBatch(run_id="x" * 300),
    run_service_pb2.WatchBatch(),
]


@pytest.mark.parametrize(
    "message", ["WatchRunResponse", "WatchRunsResponse", "StartAndWatchRunResponse"]
)
def test_a_spliced_response_has_its_batches(message):
    expected = getattr(run_service_pb2, message)(batches=BATCHES)

    data = spliced(message, [batch.SerializeToString() for batch in BATCHES])

    assert data == expected.SerializeToString(deterministic=True)


def test_nothing_is_a_keep_alive():
    assert spliced("WatchRunResponse", []) == b""


def test_watching_many_gives_a_token():
    expected = run_service_pb2.WatchRunsResponse(batches=BATCHES, resume_token="t" * 200)

    data = spliced("WatchRunsResponse", [b.SerializeToString() for b in BATCHES], "t" * 200)

    assert data == expected.SerializeToString(deterministic=True)
