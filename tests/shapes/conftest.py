"""A stage for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.shapes.stage import Stage

if TYPE_CHECKING:
    from stepgraph_testing import Workbench


@pytest.fixture
def stage(workbench: Workbench) -> Stage:
    return Stage(workbench)
