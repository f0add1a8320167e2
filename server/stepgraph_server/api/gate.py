"""Who may come in, and how everyone leaves.

Rules: while the server stops nobody comes in but probes. Calls that are short run to their end. Streams that would stay for ever
are ended by their kind, sessions before watches, and each hears why: SHUTTING_DOWN, and when to come back.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from stepgraph_server.core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepgraph_server.core.instants import Span

StreamKind: TypeAlias = Literal["watch", "session"]

LIMIT_NAMES: Final = {"watch": "max_watchers", "session": "max_sessions"}


class Stay:
    """One stream that stays until somebody ends it."""

    def __init__(self, task: asyncio.Task[object]) -> None:
        self._task = task
        self.is_ended = False

    def end(self) -> None:
        """End it: whatever it waits for is cancelled. Repeating it is harmless."""
        if not self.is_ended:
            self.is_ended = True
            self._task.cancel()

    def forgive(self) -> None:
        """Take the cancellation back, once it has been noticed: the call goes on to say good-bye."""
        self._task.uncancel()


class Gate:
    """Counts who is inside. All methods are called on the event loop."""

    def __init__(self, *, max_watchers: int, max_sessions: int, retry_after: Span) -> None:
        self._limits: dict[StreamKind, int] = {"watch": max_watchers, "session": max_sessions}
        self._streams: dict[StreamKind, set[Stay]] = {"watch": set(), "session": set()}
        self._retry_after = retry_after
        self._calls = 0
        self._is_shut = False
        self._changed = asyncio.Event()

    @property
    def is_shut(self) -> bool:
        """Whether nobody comes in any more."""
        return self._is_shut

    def count(self, kind: StreamKind) -> int:
        """Return how many streams of a kind there are."""
        return len(self._streams[kind])

    def shut(self) -> None:
        """Let nobody in from now on."""
        self._is_shut = True

    def shutting_down(self) -> Refused:
        """Return what everyone hears who comes, or has to go, while the server stops."""
        return Refused(
            "SHUTTING_DOWN",
            "the server is shutting down; try again, here or elsewhere",
            retry_after=self._retry_after,
        )

    @contextmanager
    def call(self) -> Iterator[None]:
        """Let a short call in for as long as the context lasts.

        Raises:
            Refused: SHUTTING_DOWN.
        """
        if self._is_shut:
            raise self.shutting_down()
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._changed.set()

    @contextmanager
    def stream(self, kind: StreamKind) -> Iterator[Stay]:
        """Let a stream in; it belongs to the task that is running.

        Raises:
            Refused: SHUTTING_DOWN, or OVERLOADED: there are too many of its kind.
        """
        if self._is_shut:
            raise self.shutting_down()
        streams, limit = self._streams[kind], self._limits[kind]
        if len(streams) >= limit:
            raise Refused(
                "OVERLOADED",
                f"there are {limit:,} streams of this kind; try again later",
                metadata={"limit_name": LIMIT_NAMES[kind]},
            )
        task = asyncio.current_task()
        assert task is not None, "streams run in tasks"
        stay = Stay(task)
        streams.add(stay)
        try:
            yield stay
        finally:
            streams.discard(stay)
            self._changed.set()

    def end_streams(self, kind: StreamKind) -> int:
        """End all streams of a kind, and return how many there were. They are gone once their tasks had a turn."""
        streams = list(self._streams[kind])
        for stay in streams:
            stay.end()
        return len(streams)

    async def until_empty(self, *kinds: StreamKind) -> None:
        """Return when no stream of these kinds is left; without kinds, when no short call is."""
        while any(self._streams[kind] for kind in kinds) if kinds else bool(self._calls):
            self._changed.clear()
            await self._changed.wait()
