"""One model server, one server and two executors for all tests of this folder, each in a process of its own."""

from __future__ import annotations

import httpx2
import pytest
import pytest_asyncio

from tests.support.e2e_house import house_at
from tests.support.e2e_processes import ServerProcess
from tests.support.model_processes import PROTOCOLS, ModelExecutorProcess, ModelServerProcess

#: For the whole folder, on the one event loop of its tests.
shared = pytest_asyncio.fixture(scope="session", loop_scope="session")


@shared
async def model_server():
    async with ModelServerProcess() as server:
        yield server


@shared
async def server(tmp_path_factory):
    async with ServerProcess(tmp_path_factory.mktemp("server") / "journal.db") as server:
        yield server
        assert server.faults() == []


@shared
async def executors(server, model_server):
    """An executor for each protocol; the model's name in graphs is that of the protocol."""
    openai, anthropic = (
        ModelExecutorProcess(server.address, protocol, model_server.url, protocol)
        for protocol in PROTOCOLS
    )
    async with openai, anthropic:
        yield


@pytest.fixture(params=PROTOCOLS)
def model(request, executors):
    """The name of the model, which is that of the protocol that it is asked by."""
    return request.param


@shared
async def client(server):
    async with house_at(server.address) as house:
        yield await house.client()


@shared
async def slots(model_server):
    """What the model server is doing, slot by slot."""
    async with httpx2.AsyncClient(base_url=model_server.url) as http:

        async def are_busy() -> list[bool]:
            answer = (await http.get("/slots")).raise_for_status().json()
            return [slot["is_processing"] for slot in answer]

        yield are_busy
