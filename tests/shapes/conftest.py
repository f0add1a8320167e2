"""A stage for each test: a server whose time a test can let pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stepgraph_server.app import running_server
from tests.shapes.stage import MovableClock, Stage
from tests.support.e2e_house import IN_PROCESS, house_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    clock = MovableClock()
    async with (
        running_server(IN_PROCESS, clock=clock) as server,
        house_at(server.address) as house,
    ):
        yield Stage(house, await house.client(), clock, server.runner.timers)
