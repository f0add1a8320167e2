"""A stage for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.shapes.stage import Stage
from tests.support.e2e_house import house_with_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with house_with_server() as (house, _):
        yield Stage(house, await house.client())
