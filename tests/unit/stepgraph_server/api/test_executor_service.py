"""Executors are listed by id, and read inputs that are too large for a frame."""

from __future__ import annotations

import pytest

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph_server.api.executor_service import ExecutorService
from stepgraph_server.config import PageSettings
from tests.support.standins import SessionsStandIn


@pytest.fixture
def sessions():
    return SessionsStandIn()


@pytest.fixture
def service(sessions, engine):
    pages = PageSettings(default_entries=2, max_chunk_bytes=262_144)
    return ExecutorService(sessions=sessions, executors=sessions, engine=engine, pages=pages)


async def test_executors_are_listed_by_id_in_pages(service, sessions, context):
    sessions.listed["default"] = [pb.Executor(executor_id=name) for name in "abc"]

    first = await service.ListExecutors(pb.ListExecutorsRequest(), context)
    second = await service.ListExecutors(
        pb.ListExecutorsRequest(page_token=first.next_page_token), context
    )
    elsewhere = await service.ListExecutors(pb.ListExecutorsRequest(namespace="x"), context)

    assert [e.executor_id for e in first.executors] == ["a", "b"]
    assert [e.executor_id for e in second.executors] == ["c"]
    assert not second.next_page_token
    assert not elsewhere.executors


@pytest.mark.parametrize("size", [0, 1, 262_144, 600_000])
async def test_an_input_comes_in_chunks(service, engine, context, size):
    engine.inputs["default", "r1/1/a/t0/e0", 2] = b"x" * size
    request = pb.ReadTaskInputRequest(
        attempt={"task_id": "r1/1/a/t0/e0", "attempt": 2}, instance_token=b"x" * 16
    )

    chunks = [response.chunk async for response in service.ReadTaskInput(request, context)]

    assert b"".join(chunks) == b"x" * size
    assert len(chunks) == max(1, -(-size // 262_144))


async def test_a_session_is_handed_on_as_bytes(service, context):
    async def frames():
        yield b"abc"

    stream = service.Connect(frames(), context)

    assert pb.ConnectResponse.FromString(await anext(stream)).HasField("welcome")
    assert pb.ConnectResponse.FromString(await anext(stream)).ping.nonce == 3
    await stream.aclose()
