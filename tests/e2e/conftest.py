"""A server process on a file of its own, with a house at its address."""

from __future__ import annotations

import pytest

from tests.support.e2e_house import house_at
from tests.support.e2e_processes import ServerProcess


@pytest.fixture
def data(tmp_path):
    return tmp_path / "journal.db"


@pytest.fixture
def settings():
    """What the server is started with; a test that wants something else names it as a parameter."""
    return ()


@pytest.fixture
async def server(data, settings):
    async with ServerProcess(data, *settings) as server:
        yield server
        assert server.faults() == []


@pytest.fixture
async def house(server):
    async with house_at(server.address) as house:
        yield house


@pytest.fixture
async def client(house):
    return await house.client()
