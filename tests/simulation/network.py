"""A network: frames of one stream stay in order until it breaks, and it breaks in every way there is.

Rules: either end may hear of the other's end late, or never. What was on its way when a stream broke arrives, or does not. An end that
has given a stream up may open another, while frames of the old one still arrive: so they are repeated and out of order to whoever
hears both.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    import random
    from collections.abc import AsyncIterator, Callable

    from tests.simulation.chance import Faults
    from tests.simulation.loop import Process, SimulatedLoop

#: So much may be on its way before who sends has to wait, as with HTTP/2's windows.
WINDOW = 8


class ConnectionLost(Exception):
    """The other end is gone."""


class Pipe:
    """One direction of a stream."""

    def __init__(self, network: Network, owner: Process) -> None:
        """`owner` is the process that receives."""
        self._network = network
        self._owner = owner
        self._free_at = 0.0
        self.on_data: Callable[[bytes], None] = lambda _: None
        self.on_end: Callable[[], None] = lambda: None
        #: What is sent disappears.
        self.is_black = False
        #: Who receives has been told of the end, or is dead.
        self.is_over = False
        self.on_its_way = 0
        self._writers: deque[asyncio.Future[None]] = deque()

    def send(self, data: bytes) -> None:
        """Put a frame on its way, behind all others."""
        self.on_its_way += 1
        if not self.is_black:
            self._network.deliver(self._next_time(), self._arrive, data)

    def end(self, *, after_all: bool) -> None:
        """Tell who receives that nothing more will come: behind what is on its way, or instead of it."""
        if self.is_black:
            return
        if not after_all:
            self.is_black = True
        self._network.deliver(self._next_time(), self._arrive_end)

    def _next_time(self) -> float:
        loop, network = self._network.loop, self._network
        # Never at the same time: of two timers for one moment, either may come first.
        self._free_at = max(self._free_at + 1e-6, loop.time() + network.delay_s())
        return self._free_at

    def _arrive(self, data: bytes) -> None:
        if self.is_over or self.is_black:
            return
        self._network.frames += 1
        self.on_its_way -= 1
        if self._writers and self.on_its_way < WINDOW:
            writer = self._writers.popleft()
            if not writer.done():
                writer.set_result(None)
        if self._owner.alive:
            self._owner.call(self.on_data, data)

    def _arrive_end(self) -> None:
        if self.is_over:
            return
        self.is_over = True
        if self._owner.alive:
            self._owner.call(self.on_end)

    async def write(self, data: bytes) -> None:
        """Send a frame, once there is room for it."""
        while self.on_its_way >= WINDOW:
            writer: asyncio.Future[None] = self._network.loop.create_future()
            self._writers.append(writer)
            await writer
        self.send(data)


class Requests:
    """What a server reads of a stream."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._ready: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._ended: Exception | None = None
        self._is_over = False

    def take(self, data: bytes) -> None:
        self._ready.append(data)
        self._wake()

    def end(self, error: Exception | None) -> None:
        self._is_over, self._ended = True, error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            if self._is_over:
                if self._ended is not None:
                    raise self._ended
                raise StopAsyncIteration
            self._waiter = self._loop.create_future()
            await self._waiter
        return self._ready.popleft()


class Link:
    """One stream between an executor and a server."""

    def __init__(self, network: Network, executor: Process, server: Process) -> None:
        self.network = network
        self.up = Pipe(network, server)
        self.down = Pipe(network, executor)
        self.status = ""
        network.links[self] = None

    def break_by_chance(self, dice: random.Random) -> None:
        """Break, in one of the ways in which both ends hear of it."""
        self.up.end(after_all=dice.random() < 0.5)
        self.down.end(after_all=dice.random() < 0.5)
        self.network.links.pop(self, None)

    def turn_black(self, dice: random.Random) -> None:
        """Let what is sent disappear in one direction or both, and nobody hear of it."""
        which = dice.choice(("up", "down", "both"))
        self.up.is_black |= which != "down"
        self.down.is_black |= which != "up"

    def left_by_executor(self) -> None:
        """The executor's end is gone."""
        self.down.is_over = True
        self.up.end(after_all=True)
        self.network.links.pop(self, None)

    def left_by_server(self, *, after_all: bool) -> None:
        """The server's end is gone."""
        self.up.is_over = True
        self.down.end(after_all=after_all)
        self.network.links.pop(self, None)


class Network:
    """All streams, and the time that things take on them."""

    def __init__(self, loop: SimulatedLoop, faults: Faults, dice: random.Random) -> None:
        self.loop = loop
        self._faults = faults
        self._dice = dice
        #: Streams that live, in the order of their beginning.
        self.links: dict[Link, None] = {}
        self.frames = 0

    def delay_s(self) -> float:
        """Return how long something takes."""
        slow = self._faults.strikes("net.slow")
        if slow is not None:
            return slow.choice((0.1, 1.0, 6.0))
        return self._dice.uniform(0.0005, 0.004)

    def deliver(self, at: float, function: Callable[..., None], *args: object) -> None:
        """Let something arrive."""
        self.loop.later(max(0.0, at - self.loop.time()), function, *args)

    def may_break(self, link: Link) -> None:
        """Let something go wrong with a stream on which something is sent, perhaps."""
        if (dice := self._faults.strikes("net.reset")) is not None:
            link.break_by_chance(dice)
        elif (dice := self._faults.strikes("net.black_hole")) is not None:
            link.turn_black(dice)


__all__ = ["ConnectionLost", "Link", "Network", "Requests"]
