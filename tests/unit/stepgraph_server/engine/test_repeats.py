"""Requests that are sent again. That each RPC keeps its promise is in test_engine.py."""

from __future__ import annotations

import pytest

from stepgraph.v1 import run_pb2
from stepgraph_server.core.errors import Refused
from stepgraph_server.engine.callers import RequestKey
from stepgraph_server.engine.clock import SystemClock
from stepgraph_server.engine.repeats import Repeats, first_response
from stepgraph_server.storage.errors import JournalUnavailable, RequestIdReused
from stepgraph_server.storage.memory import MemoryStore

KEY = RequestKey(method="CancelRun", request_id="x", fingerprint="one")
OTHER = RequestKey(method="CancelRun", request_id="x", fingerprint="two")
RUN = run_pb2.Run(run_id="r1")


@pytest.fixture
def repeats() -> Repeats:
    return Repeats(MemoryStore().requests, SystemClock())


async def test_the_first_response_is_kept(repeats: Repeats) -> None:
    """Whoever comes second gets it, whatever they would have got."""
    assert await repeats.earlier("default", KEY, run_pb2.Run) is None
    assert await repeats.keep("default", KEY, RUN, run_pb2.Run) == RUN
    second = run_pb2.Run(run_id="r2")
    assert await repeats.keep("default", KEY, second, run_pb2.Run) == RUN
    assert await repeats.earlier("default", KEY, run_pb2.Run) == RUN
    assert await repeats.earlier("other", KEY, run_pb2.Run) is None


async def test_another_request_under_one_id_is_refused(repeats: Repeats) -> None:
    """It would get an answer to what it did not ask."""
    await repeats.keep("default", KEY, RUN, run_pb2.Run)
    with pytest.raises(Refused, match="use a new one") as refused:
        await repeats.earlier("default", OTHER, run_pb2.Run)
    assert refused.value.reason == "REQUEST_ID_REUSED"
    with pytest.raises(Refused, match="use a new one"):
        await repeats.keep("default", OTHER, RUN, run_pb2.Run)


async def test_a_request_without_an_id_is_not_remembered(repeats: Repeats) -> None:
    """There is nothing to find it by."""
    assert await repeats.earlier("default", None, run_pb2.Run) is None
    assert repeats.recorder(None, None) is None  # type: ignore[arg-type]  # it is not looked at


async def test_what_can_not_be_written_is_said_so(repeats: Repeats) -> None:
    """Unless the store says that it was written before."""
    error = JournalUnavailable("it", "full", "wait")
    with pytest.raises(Refused, match="could not be written") as refused:
        first_response(error, KEY, run_pb2.Run)
    assert refused.value.retry_after
    await repeats.keep("default", KEY, RUN, run_pb2.Run)
    record = await repeats._requests.get("default", "CancelRun", "x")
    assert record is not None
    assert first_response(RequestIdReused(record), KEY, run_pb2.Run) == RUN
