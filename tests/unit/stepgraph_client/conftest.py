"""A fake server for every test of the client, and a client that does not wait long."""

from __future__ import annotations

import pytest

from stepgraph_client.calls import Patience
from stepgraph_client.client import Client
from tests.support.fake_server import FakeServer

HASTY = Patience(max_tries=4, timeout_s=5, first_delay_s=0.001, max_delay_s=0.01)


@pytest.fixture
def server():
    fake = FakeServer()
    fake.start()
    yield fake
    fake.stop()


@pytest.fixture
async def client(server):
    async with Client(server.address, patience=HASTY, watch_patience=HASTY) as client:
        yield client
