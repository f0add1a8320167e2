"""A loop whose time is what a test makes it: nothing waits, time jumps to whatever is due next.

Rules: nothing else may wake the loop, no thread and no socket; a test that would wait for ever fails instead.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from typing import TYPE_CHECKING, Any, ParamSpec

from stepgraph_server.core.instants import Instant

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

P = ParamSpec("P")

#: 2026-01-01T00:00:00Z
START = 1_767_225_600_000_000


class _Jumping(selectors.SelectSelector):
    """Never waits: it lets the loop's time pass instead."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or timeout == 0:
            return found
        assert timeout is not None, "nothing will ever happen"
        self.loop.virtual_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    def __init__(self) -> None:
        selector = _Jumping()
        selector.loop = self
        self.virtual_s = 0.0
        super().__init__(selector)

    def time(self) -> float:
        return self.virtual_s


class LoopClock:
    """The wall clock of a test: it goes with the loop, and can be moved by itself."""

    def __init__(self) -> None:
        self.ahead_us = 0

    def now(self) -> Instant:
        """Return the time; see Clock."""
        passed = round(asyncio.get_running_loop().time() * 1_000_000)
        return Instant(START + self.ahead_us + passed)


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on a loop in virtual time."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


async def turns(count: int = 20) -> None:
    """Let the loop turn, without any time passing."""
    for _ in range(count):
        await asyncio.sleep(0)
