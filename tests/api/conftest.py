"""Real grpc on loopback: the real API with stand-ins behind it, and clients of both kinds."""

from __future__ import annotations

import grpc.aio
import pytest

from stepgraph_server.config import Settings, ShutdownSettings
from stepgraph_server.core.instants import MILLISECOND, Span
from tests.support.standins import serving

SETTINGS = Settings(
    listen="127.0.0.1:0",
    memory=True,
    shutdown=ShutdownSettings(
        drain_grace=Span(300 * MILLISECOND), stop_grace=Span(300 * MILLISECOND)
    ),
)


@pytest.fixture
def settings():
    return SETTINGS


@pytest.fixture
async def served(settings):
    async with serving(settings) as stand_ins:
        yield stand_ins


@pytest.fixture
async def channel(served):
    async with grpc.aio.insecure_channel(served.server.address) as channel:
        yield channel
