"""A store that is watched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.stepgraph_server.engine.watch.watching import Watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    opened = Watched()
    await opened.start()
    yield opened
    await opened.store.close()
