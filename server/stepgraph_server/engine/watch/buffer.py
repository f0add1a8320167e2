"""What is shown to watchers, and the bounded buffer in which it waits for one of them.

Rules: entries are shared by all watchers, so nobody changes one. Bytes for watchers are made when the first of them takes a
batch, once for each view. A buffer never blocks: what has no room is refused, and its owner decides what that means.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from stepgraph.v1 import event_pb2
from stepgraph_server.engine.watch.frames import Part, parts_of, transient_field
from stepgraph_server.engine.watch.summary import summary_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph_server.storage.records import RunCreation, RunKey

MAX_BUFFER_BYTES: Final = 1024 * 1024
"""What waits for one watcher, before it is fed from the journal instead. The bytes are shared by all watchers of a run."""

MAX_TRANSIENT_BYTES: Final = 512 * 1024
"""How much of it may be transient, before that is dropped."""

ENTRY_OVERHEAD_BYTES: Final = 200
"""What an entry takes besides its bytes, so that many small ones count too."""


class AttemptKey(NamedTuple):
    """An attempt, among those of all runs."""

    key: RunKey
    task_id: str
    attempt: int


class ShownBatch:
    """The events of one append."""

    __slots__ = (
        *("_full", "_stored", "_summary", "creation", "first_sequence", "key"),
        *("last_sequence", "position", "size", "terminal"),
    )

    def __init__(  # noqa: PLR0913  # the parts of one append, once per append
        self,
        key: RunKey,
        stored: bytes,
        first_sequence: int,
        last_sequence: int,
        position: int,
        *,
        terminal: bool,
        creation: RunCreation | None = None,
    ) -> None:
        self.key = key
        # Of the first batch of a run that is live: it tells whether the run is watched, without a look at its row.
        self.creation = creation
        self.first_sequence = first_sequence
        self.last_sequence = last_sequence
        self.position = position
        self.terminal = terminal
        self.size = len(stored) + ENTRY_OVERHEAD_BYTES
        self._stored = stored
        self._full: Sequence[Part] | None = None
        self._summary: Sequence[Part] | None = None

    def parts(self, *, summary: bool) -> Sequence[Part]:
        """Return the events as a view shows them, in parts that fit into a response."""
        if summary:
            if self._summary is None:
                self._summary = parts_of(summary_of(self._stored), self.first_sequence)
            return self._summary
        if self._full is None:
            self._full = parts_of(self._stored, self.first_sequence)
        return self._full


class ShownTransient:
    """One transient event. `is_discard`: it says that what an attempt showed does not count."""

    __slots__ = ("attempt", "field", "is_discard", "size")

    def __init__(self, attempt: AttemptKey, event: bytes, *, is_discard: bool = False) -> None:
        self.attempt = attempt
        self.field = transient_field(event)
        self.is_discard = is_discard
        self.size = len(event) + ENTRY_OVERHEAD_BYTES

    @classmethod
    def discarded(cls, attempt: AttemptKey) -> ShownTransient:
        """Return an entry that says that an attempt is over without a result."""
        event = event_pb2.TransientEvent(
            task_id=attempt.task_id,
            attempt=attempt.attempt,
            attempt_discarded=event_pb2.TransientEvent.AttemptDiscarded(),
        )
        return cls(attempt, event.SerializeToString(), is_discard=True)

    @classmethod
    def dropped(cls, attempt: AttemptKey) -> ShownTransient:
        """Return an entry that says that something of an attempt was not sent."""
        event = event_pb2.TransientEvent(
            task_id=attempt.task_id,
            attempt=attempt.attempt,
            progress_dropped=event_pb2.TransientEvent.ProgressDropped(),
        )
        return cls(attempt, event.SerializeToString())


Entry: TypeAlias = ShownBatch | ShownTransient


class Buffer:
    """What waits for one watcher, in order."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._size = 0
        self._transient_size = 0
        # Attempts of which something was dropped, and the entry that says so still waits.
        self._told: set[AttemptKey] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def first(self) -> Entry:
        """Return the oldest entry, which must exist."""
        return self._entries[0]

    def add(self, batch: ShownBatch) -> bool:
        """Append a batch, unless there is no room for it."""
        if self._size + batch.size > MAX_BUFFER_BYTES:
            return False
        self.push(batch)
        return True

    def push(self, batch: ShownBatch) -> None:
        """Append a batch, however much there is."""
        self._entries.append(batch)
        self._size += batch.size

    def add_transient(self, transient: ShownTransient) -> None:
        """Append a transient event; if there is no room, say instead that something is missing, once per attempt."""
        if not transient.is_discard and (
            self._transient_size + transient.size > MAX_TRANSIENT_BYTES
        ):
            if transient.attempt in self._told:
                return
            self._told.add(transient.attempt)
            transient = ShownTransient.dropped(transient.attempt)
        self._entries.append(transient)
        self._size += transient.size
        self._transient_size += transient.size

    def pop(self) -> None:
        """Remove the oldest entry."""
        entry = self._entries.popleft()
        self._size -= entry.size
        if isinstance(entry, ShownTransient):
            self._transient_size -= entry.size
            # More may be dropped from now on, which has to be said again.
            self._told.discard(entry.attempt)

    def clear(self) -> list[ShownTransient]:
        """Remove everything, and return the transient events that were in it."""
        transients = [entry for entry in self._entries if isinstance(entry, ShownTransient)]
        self._entries.clear()
        self._told.clear()
        self._size = self._transient_size = 0
        return transients
