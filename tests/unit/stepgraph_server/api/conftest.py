"""What servicers are built on in tests: a store in memory, an engine that stands in, a clock that a test sets."""

from __future__ import annotations

import pytest

from stepgraph_server.api.requests import RequestChecker
from stepgraph_server.api.server import request_limits
from stepgraph_server.config import PageSettings, Settings
from stepgraph_server.core.errors import Refused
from stepgraph_server.storage.memory import MemoryStore
from tests.support.standins import EngineStandIn


class FakeContext:
    """A call's context, as far as servicers look at it."""

    def invocation_metadata(self):
        return None

    def peer(self):
        return "test"


@pytest.fixture
def context():
    return FakeContext()


@pytest.fixture
def pages():
    return PageSettings(default_entries=2)


@pytest.fixture
async def store():
    store = MemoryStore()
    yield store
    await store.close()


@pytest.fixture
async def engine(store):
    engine = EngineStandIn(store)
    await store.start(engine.on_appended)
    return engine


@pytest.fixture
def checker():
    return RequestChecker(request_limits(Settings(memory=True)))


@pytest.fixture
def reason_of():
    async def reason_of(call):
        with pytest.raises(Refused) as caught:
            await call
        return caught.value.reason

    return reason_of
