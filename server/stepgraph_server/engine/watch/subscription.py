"""One watch: how it goes on from the journal without a gap, and goes live.

Rules:
1. What is shown is offered on the loop and costs an append to a buffer. All else is done by the watcher, in `next`.
2. Durable events are never dropped: a watcher whose buffer is full is fed from the journal until it has caught up.
3. Transient ones may be dropped, and then the watcher is told of which attempts.

Why there is no gap and no duplicate: a watcher is offered what is shown from the moment that it exists, and reads the journal
then. What is committed before a read is in that read; what is committed later is shown later, and so is in its buffer. What is
in both is known by its sequence, or its position, and given once.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Self, TypeAlias

from stepgraph_server.engine.watch.buffer import (
    AttemptKey,
    Buffer,
    ShownBatch,
    ShownTransient,
)
from stepgraph_server.engine.watch.frames import (
    BATCH_OVERHEAD_BYTES,
    MAX_RESPONSE_BYTES,
    watch_batch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from stepgraph_server.engine.watch.frames import Part
    from stepgraph_server.engine.watch.texts import ShownTexts
    from stepgraph_server.storage.journal import Journal
    from stepgraph_server.storage.records import RunKey, StoredBatch
    from stepgraph_server.storage.runs import Runs

READ_BYTES: Final = 1024 * 1024
"""How much of the journal is read at a time."""

GATHER_S: Final = 0.005
"""A watcher that was given something less than this ago waits that long for more: a response costs far more than what is in
it. Nobody who looks at it notices, and whoever watches quiet runs hears of everything at once. In
benchmarks.react at 64 runs there are 38 % fewer responses."""

MAX_REMEMBERED: Final = 1_000
"""So many attempts are remembered that a watcher which is behind must hear of; of more, the oldest are forgotten."""


class WatchSignal(Enum):
    """What `next` gives when there is nothing to send."""

    KEEPALIVE = "keepalive"
    END = "end"


KEEPALIVE: Final = WatchSignal.KEEPALIVE
END: Final = WatchSignal.END


class WatchItem(NamedTuple):
    """What is new of one run: fields of a WatchBatch, its events and then its transient ones."""

    run_id: str
    events: list[bytes]
    transient_events: list[bytes]

    def to_bytes(self) -> bytes:
        """Return a serialized WatchBatch."""
        return watch_batch(self.run_id.encode(), (*self.events, *self.transient_events))


Ready: TypeAlias = "list[WatchItem] | Literal[WatchSignal.KEEPALIVE, WatchSignal.END]"


class _Response:
    """One response that is being filled, in the order of what happened."""

    def __init__(self) -> None:
        self.items: list[WatchItem] = []
        self._size = 0

    def has_room_for(self, fields: bytes) -> bool:
        """Whether it may grow by so much. An empty one takes anything: what is larger can't be sent otherwise."""
        grown = self._size + len(fields) + BATCH_OVERHEAD_BYTES
        return not self.items or grown < MAX_RESPONSE_BYTES

    def add_events(self, run_id: str, fields: bytes) -> None:
        last = self.items[-1] if self.items else None
        # In an item the events come first; what happened after something transient needs the next item.
        if last is None or last.run_id != run_id or last.transient_events:
            last = self._begin(run_id)
        last.events.append(fields)
        self._size += len(fields)

    def add_transient(self, run_id: str, field: bytes) -> None:
        last = self.items[-1] if self.items else None
        if last is None or last.run_id != run_id:
            last = self._begin(run_id)
        last.transient_events.append(field)
        self._size += len(field)

    def _begin(self, run_id: str) -> WatchItem:
        item = WatchItem(run_id, [], [])
        self.items.append(item)
        self._size += BATCH_OVERHEAD_BYTES
        return item


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What subscriptions take from, and how they leave the hub."""

    journal: Journal
    runs: Runs
    texts: ShownTexts
    leave: Callable[[Subscription], None]


class Subscription(ABC):
    """What all watches have in common. One task takes from it, with `next` or `async for`; close it when done.

    Subclasses say what their cursor is.
    """

    def __init__(self, sources: Sources, *, summary: bool) -> None:
        self._journal = sources.journal
        self._runs = sources.runs
        self._texts = sources.texts
        self._leave = sources.leave
        self._summary = summary
        self._buffer = Buffer()
        self._history = Buffer()
        self._is_live = False
        # Something was shown that is not in the buffer: it must be read.
        self._missed = False
        # The watch ends when all that there is has been given; and now, whatever there is.
        self._is_ending = False
        self._is_over = False
        self._waiter: asyncio.Future[bool] | None = None
        self._given_at = 0.0
        # What a watcher that was live must hear when it is live again.
        self._was_live = False
        self._discards: deque[ShownTransient] = deque(maxlen=MAX_REMEMBERED)
        self._dropped: dict[AttemptKey, None] = {}
        self._undecided: RunKey | None = None

    # For the watcher

    async def next(self, timeout_s: float | None) -> Ready:
        """Return all that is ready, waiting for it at most so long; None waits for ever.

        Returns KEEPALIVE when the time is up, and END when nothing will ever come.

        Raises:
            JournalUnavailable: The journal could not be read; ask again, or give up.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while not self._is_over:
            if not self._is_live and not self._history:
                await self._catch_up()
            if items := self._take():
                self._given_at = loop.time()
                return items
            if self._undecided is not None:
                await self._decide(self._undecided)
            elif self._is_live and not self._buffer:
                if self._is_ending:
                    self._is_over = True
                elif not await self._wait(deadline):
                    return KEEPALIVE
                elif (early := self._given_at + GATHER_S - loop.time()) > 0:
                    await asyncio.sleep(early)
            elif deadline is not None and loop.time() >= deadline:
                # A long way through what is not for this watcher.
                return KEEPALIVE
        return END

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[WatchItem]:
        ready = await self.next(None)
        if isinstance(ready, WatchSignal):
            raise StopAsyncIteration
        return ready

    def close(self) -> None:
        """Take no more. Repeating it is harmless."""
        self._is_over = True
        self._leave(self)
        self._buffer.clear()
        self._history.clear()
        self._wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # For the hub; these return at once

    def offer(self, batch: ShownBatch) -> None:
        """Show the events of an append that is durable."""
        if self._missed:
            return
        if not self._buffer.add(batch):
            self._fall_behind()
        self._wake()

    def offer_transient(self, transient: ShownTransient) -> None:
        """Show a transient event."""
        if self._summary:
            return
        if self._is_live:
            self._buffer.add_transient(transient)
            self._wake()
        elif self._was_live:
            self._remember(transient)

    def end(self) -> None:
        """End the watch once it has given all that there is."""
        self._is_ending = True
        self._wake()

    def end_now(self) -> None:
        """End the watch with what it has given."""
        self._is_over = True
        self._wake()

    # What subclasses know

    @abstractmethod
    def _newer(self, batch: ShownBatch) -> Iterable[Part]:
        """Return what the watcher has not got of a batch; or set `_undecided` and return nothing."""
        ...

    @abstractmethod
    def _given(self, batch: ShownBatch, part: Part) -> None:
        """Move the cursor behind a part that is given."""
        ...

    @abstractmethod
    def _passed(self, batch: ShownBatch) -> None:
        """Move the cursor behind a batch of which nothing is left to give."""
        ...

    @abstractmethod
    def _joins(self, batch: ShownBatch) -> bool:
        """Whether nothing lies between the cursor and a batch that was offered."""
        ...

    @abstractmethod
    async def _read(self) -> list[ShownBatch]:
        """Read what comes after the cursor; nothing means that there is nothing yet."""
        ...

    @abstractmethod
    async def _nothing_follows(self) -> bool:
        """Whether the watch ends, now that the journal has no more."""
        ...

    @abstractmethod
    def _texts_so_far(self) -> Iterable[ShownTransient]:
        """Return what live attempts have shown."""
        ...

    @abstractmethod
    async def _decide(self, key: RunKey) -> None:
        """Find out whether a run is watched."""
        ...

    # How it goes

    def _take(self) -> list[WatchItem]:
        """Fill a response from the history, or else from the buffer if the watcher is live."""
        self._undecided = None
        response = _Response()
        queue = self._history if self._history or not self._is_live else self._buffer
        while queue and not self._is_over:
            entry = queue.first()
            if isinstance(entry, ShownTransient):
                if not response.has_room_for(entry.field):
                    break
                response.add_transient(entry.attempt.key.run_id, entry.field)
            elif not self._take_batch(entry, response):
                break
            queue.pop()
        return response.items

    def _take_batch(self, batch: ShownBatch, response: _Response) -> bool:
        """Add what is new of a batch, and return whether nothing of it is left."""
        for part in self._newer(batch):
            if not response.has_room_for(part.fields):
                return False
            response.add_events(batch.key.run_id, part.fields)
            self._given(batch, part)
        if self._undecided is not None:
            return False
        self._passed(batch)
        return True

    async def _catch_up(self) -> None:
        """Read on from the journal, or go live where it meets the buffer."""
        if self._missed:
            # Only from here on is everything that is shown kept again, so the read must come after this.
            self._buffer.clear()
            self._missed = False
        elif self._buffer:
            first = self._buffer.first()
            assert isinstance(first, ShownBatch), "only who is live is given transient events"
            if self._joins(first):
                self._go_live()
                return
        for batch in await self._read():
            self._history.push(batch)
        if self._history or self._is_over:
            return
        if await self._nothing_follows():
            self._is_over = True
        elif not self._missed:
            self._go_live()

    def _go_live(self) -> None:
        self._is_live = True
        self._was_live = True
        if self._summary:
            return
        for discard in self._discards:
            self._buffer.add_transient(discard)
        for attempt in self._dropped:
            self._buffer.add_transient(ShownTransient.dropped(attempt))
        self._discards.clear()
        self._dropped.clear()
        # Deltas that were shown meanwhile are in these texts, and were not put into the buffer.
        for text in self._texts_so_far():
            self._buffer.add_transient(text)

    def _fall_behind(self) -> None:
        for transient in self._buffer.clear():
            self._remember(transient)
        self._is_live = False
        self._missed = True

    def _remember(self, transient: ShownTransient) -> None:
        """Keep what a watcher must hear of when it is live again: not the progress, but that some is missing."""
        if transient.is_discard:
            self._dropped.pop(transient.attempt, None)
            self._discards.append(transient)
        elif len(self._dropped) < MAX_REMEMBERED:
            self._dropped[transient.attempt] = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    async def _wait(self, deadline: float | None) -> bool:
        """Wait until something is offered; return False if the time was up before."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiter = waiter
        timer = None if deadline is None else loop.call_at(deadline, _time_is_up, waiter)
        try:
            return await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()


def _time_is_up(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)


def shown(key: RunKey, batch: StoredBatch) -> ShownBatch:
    """Return a batch that was read as one that is shown."""
    return ShownBatch(
        key,
        batch.batch,
        batch.first_sequence,
        batch.last_sequence,
        batch.position,
        # Whether it is the end is asked once, when the journal has no more.
        terminal=False,
    )


def texts_of(texts: ShownTexts, key: RunKey) -> Iterable[ShownTransient]:
    """Return what the live attempts of a run have shown so far."""
    for task_id, attempt, event in texts.of_run(key):
        yield ShownTransient(AttemptKey(key, task_id, attempt), event)
