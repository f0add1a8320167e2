"""Calls to the server: deadlines, retries, and statuses as exceptions.

Rules: a call is retried only if it was lost or the server asked for it, and always as the very same request, so a
`request_id` inside makes it one call however often it is sent. Retries are bounded and jittered, so that many callers
of one server that comes back do not come back as one.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import grpc

from stepgraph_client import tracing
from stepgraph_client.errors import Status, Unreachable, read_status, refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Q = TypeVar("Q")
R = TypeVar("R")

#: The longest that a server's own wish ("come again in …") is followed.
MAX_RETRY_AFTER_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a caller waits, and how often it tries again.

    `timeout_s` is for one try of one call. The delay before try n + 1 is `first_delay_s` times `factor` to the n,
    at most `max_delay_s`, of which a random half is waited for at least.
    """

    max_tries: int = 6
    timeout_s: float = 30.0
    first_delay_s: float = 0.1
    factor: float = 2.0
    max_delay_s: float = 3.0

    def delay_s(self, failures: int, chance: float) -> float:
        """Return how long to wait after so many failures in a row; `chance` is a random number from 0 to 1."""
        # The exponent is bounded: a float overflows long before a watcher loses its patience.
        longest = min(self.max_delay_s, self.first_delay_s * self.factor ** min(failures - 1, 32))
        return longest * (0.5 + chance / 2)


#: For a watch: it is tried for minutes, because a server may be replaced under it.
WATCH_PATIENCE = Patience(max_tries=60, first_delay_s=0.2, max_delay_s=5.0)


class Caller:
    """Makes calls to one server. It holds no connection of its own; methods are those of a channel's stubs."""

    def __init__(
        self,
        server: str,
        patience: Patience,
        *,
        chance: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.server = server
        self._patience = patience
        self._chance = chance
        self._sleep = sleep

    async def unary(self, method: grpc.aio.UnaryUnaryMultiCallable[Q, R], request: Q) -> R:
        """Make a call, if need be several times. The request must be safe to repeat.

        Raises:
            Refused: the server said no.
            Unreachable: the retries are used up.
        """
        return await self.retried(
            lambda: method(request, timeout=self._patience.timeout_s, metadata=tracing.metadata())
        )

    async def retried(self, attempt: Callable[[], Awaitable[R]]) -> R:
        """Try something until it is answered; see `unary`."""
        failures = 0
        while True:
            try:
                return await attempt()
            except grpc.aio.AioRpcError as error:
                failures += 1
                status = read_status(error)
                if not status.retryable or failures >= self._patience.max_tries:
                    raise self.failure(status, failures) from error
            await self.pause(self._patience, failures, status)

    async def pause(self, patience: Patience, failures: int, status: Status) -> None:
        """Wait before the next try: as long as the server asked for, at least as the patience says."""
        wished = min(status.retry_after_s or 0.0, MAX_RETRY_AFTER_S)
        await self._sleep(max(wished, patience.delay_s(failures, self._chance())))

    def failure(self, status: Status, tries: int) -> Exception:
        """Return the exception for a call that is given up."""
        if status.lost:
            return Unreachable(self.server, status, tries=tries)
        return refusal(status)
