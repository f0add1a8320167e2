"""The port of the journal: what is appended, in which order, and when it counts.

Rules: an append is all or nothing, and one that is refused disturbs no other. What `on_appended` reports without an error
survives a crash of the process and of the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from stepgraph_server.storage.records import Append, RunKey, StoredBatch

MAX_WAITING_APPENDS = 20_000
"""So many appends may wait before new work should be refused: more than a second of a fast disk's work."""

MAX_WAITING_BYTES = 256 * 1024 * 1024
"""And so many bytes of batches: what they may take of the memory of a small server."""


class Backlog(NamedTuple):
    """What was submitted and has not been reported yet."""

    appends: int
    bytes: int

    @property
    def is_full(self) -> bool:
        """Whether to refuse new requests. What runs have already begun must still be submitted."""
        return self.appends >= MAX_WAITING_APPENDS or self.bytes >= MAX_WAITING_BYTES


class Journal(Protocol):
    """The events of all runs, in the order in which they became durable.

    All methods are called from the event loop that the store was started on.
    """

    def submit(self, append: Append) -> None:
        """Hand an append over. Never blocks and never raises; what became of it comes with `on_appended`, exactly once.

        Appends of one run are looked at in the order in which they were submitted. An append carries on at exactly
        the last sequence of its run + 1 (else `SequenceConflict`) and creates its run exactly if it begins with 1
        (`RunExists` if there is one). With a `prefix` it creates its run behind the appends of another run, which are copied in
        the same transaction, get positions of their own before its, and are not reported; `AppendInvalid` if the other run
        has no append that ends there. A `request` whose id was used before gives `RequestIdReused`; otherwise it
        is stored together with the append. An append that breaks the contract of `Append` gives `AppendInvalid`.
        When nothing can be written, all that was tried together gets `JournalUnavailable`.

        After an append has failed, everything of the same run that was submitted before the failure was reported
        fails with `AppendSkipped`, because it was built on what did not happen. Appends of other runs are unaffected.
        What is submitted after `close` began fails with `JournalUnavailable`.
        """
        ...

    def backlog(self) -> Backlog:
        """Return how much waits. Nothing is refused here: the API refuses new work when it `is_full`."""
        ...

    async def read(self, key: RunKey, after_sequence: int, max_bytes: int) -> list[StoredBatch]:
        """Return the batches of a run that hold events after `after_sequence`, in order.

        The first may begin before it: a batch is returned whole. Stops before the batch with which the answer would
        be larger than `max_bytes`, but returns at least one if there is one. Empty: nothing follows, or no such run.
        """
        ...

    async def read_positions(
        self, namespace: str, after_position: int, max_bytes: int
    ) -> list[tuple[RunKey, StoredBatch]]:
        """Return the batches of all runs of a namespace after a position, in the order of positions.

        Cut at `max_bytes` as `read` is. Empty: nothing of this namespace follows up to `head_position()` as it was
        before the call.
        """
        ...

    def head_position(self) -> int:
        """Return a position at or after that of everything reported so far, and not after what can be read now."""
        ...
