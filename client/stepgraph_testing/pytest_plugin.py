"""For pytest: the fixture `workbench`, and failures of paths that say what happened.

It is found by itself where stepgraph is installed. Rules: nothing of the server is imported before a test asks for it, because
every session of pytest in that environment loads this.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stepgraph_testing.workbench import Workbench


async def _workbench() -> AsyncIterator[Workbench]:
    """Give a server of its own to a test, with an executor, a client, and a clock that skips; see stepgraph_testing.Workbench."""
    from stepgraph_testing.workbench import Workbench  # noqa: PLC0415

    async with Workbench() as bench:
        yield bench


def _missing() -> None:
    """Say what the fixture needs."""
    pytest.fail("the fixture `workbench` needs pytest-asyncio: pip install pytest-asyncio")


def _fixture() -> object:
    if find_spec("pytest_asyncio") is None:
        return pytest.fixture(_missing, name="workbench")
    import pytest_asyncio  # noqa: PLC0415

    return pytest_asyncio.fixture(_workbench, name="workbench")


workbench: Final = _fixture()


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Show paths as people draw them, where they part, side by side."""
    # A path can only be there if its module is.
    history = sys.modules.get("stepgraph_testing.history")
    if history is None or op != "==" or not isinstance(left, history.Path):
        return None
    if not isinstance(right, list | tuple):
        return None
    expected = history.Path(right)
    pairs = zip(left, right, strict=False)
    same = next((index for index, (one, other) in enumerate(pairs) if one != other), None)
    at = min(len(left), len(right)) if same is None else same
    return [
        "the run took another path",
        f"expected: {expected!r}",
        f"taken:    {left!r}",
        f"they part after {at} nodes: expected {_at(right, at)}, taken {_at(left, at)}",
    ]


def _at(path: list[object] | tuple[object, ...], index: int) -> str:
    return str(path[index]) if index < len(path) else "the end"
