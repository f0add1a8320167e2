"""A client of the plain synchronous kind, with generated code and nothing of ours, gets everything it needs."""

from __future__ import annotations

import asyncio
import threading

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from stepgraph.v1 import graph_service_pb2, run_pb2, run_service_pb2
from stepgraph.v1.graph_service_pb2_grpc import GraphServiceStub
from stepgraph.v1.run_service_pb2_grpc import RunServiceStub
from stepgraph_server.config import Settings
from tests.support.graphs import graph
from tests.support.standins import serving


class ServerThread:
    """The real server on a loop of its own, as it is in a process of its own."""

    def __init__(self):
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self.address = ""

    async def _serve(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with serving(Settings(listen="127.0.0.1:0", memory=True)) as served:
            self.address = served.server.address
            self._ready.set()
            await self._stop.wait()

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()


# The names of these fixtures are those of pytest-grpc, which builds grpc_channel and grpc_stub on them.


@pytest.fixture(scope="module")
def _grpc_server():
    with ServerThread() as server:
        yield server


@pytest.fixture(scope="module")
def grpc_addr(_grpc_server):
    return _grpc_server.address


@pytest.fixture(scope="module")
def grpc_server(_grpc_server):
    return _grpc_server


@pytest.fixture(scope="module")
def grpc_stub_cls():
    return RunServiceStub


def test_it_starts_reads_and_cancels_a_run(grpc_stub):
    request = run_service_pb2.StartRunRequest(
        run_id="foreign-1", graph={"reference": "greet"}, labels={"team": "blue"}
    )

    started = grpc_stub.StartRun(request, timeout=10).run
    read = grpc_stub.GetRun(run_service_pb2.GetRunRequest(run_id="foreign-1"), timeout=10).run
    cancelled = grpc_stub.CancelRun(
        run_service_pb2.CancelRunRequest(run_id="foreign-1"), timeout=10
    ).run

    assert started == read
    assert dict(read.labels) == {"team": "blue"}
    assert cancelled.status == run_pb2.RUN_STATUS_CANCELLED


def test_it_watches_a_run_to_its_end(grpc_stub):
    request = run_service_pb2.StartAndWatchRunRequest(
        start={"run_id": "foreign-2", "graph": {"reference": "greet"}}
    )
    sequences = []
    for response in grpc_stub.StartAndWatchRun(request, timeout=10):
        if response.HasField("run"):
            grpc_stub.CancelRun(run_service_pb2.CancelRunRequest(run_id="foreign-2"))
        sequences += [event.sequence for batch in response.batches for event in batch.events]

    assert sequences == [1, 2]


def test_it_reads_the_details_of_a_refusal(grpc_stub):
    with pytest.raises(grpc.RpcError) as caught:
        grpc_stub.GetRun(run_service_pb2.GetRunRequest(run_id="nobody"), timeout=10)

    trailers = dict(caught.value.trailing_metadata())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert (info.reason, info.domain, dict(info.metadata)) == (
        "RUN_NOT_FOUND",
        "stepgraph",
        {"run_id": "nobody"},
    )


def test_it_registers_a_graph(grpc_channel):
    stub = GraphServiceStub(grpc_channel)

    response = stub.RegisterGraph(
        graph_service_pb2.RegisterGraphRequest(graph=graph("a b", ["a > b"])), timeout=10
    )

    assert (response.created, response.version.version) == (True, 1)
