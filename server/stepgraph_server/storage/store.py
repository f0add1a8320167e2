"""The port of a whole store: what the server needs of a database, and nothing about which one it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from stepgraph_server.storage.graphs import Graphs
    from stepgraph_server.storage.interrupts import Interrupts
    from stepgraph_server.storage.journal import Journal
    from stepgraph_server.storage.records import Appended
    from stepgraph_server.storage.requests import Requests
    from stepgraph_server.storage.runs import Runs
    from stepgraph_server.storage.values import Values

OnAppended: TypeAlias = Callable[[list["Appended"]], None]
"""Called on the loop once per commit, after it is durable, with what was submitted, in that order. Must not raise."""


class Store(Protocol):
    """Durable facts. Belongs to one process and one event loop at a time."""

    @property
    def journal(self) -> Journal:
        """The events of runs."""
        ...

    @property
    def runs(self) -> Runs:
        """The rows of runs."""
        ...

    @property
    def graphs(self) -> Graphs:
        """Definitions and versions of graphs."""
        ...

    @property
    def values(self) -> Values:
        """Large contents."""
        ...

    @property
    def requests(self) -> Requests:
        """Request ids."""
        ...

    @property
    def interrupts(self) -> Interrupts:
        """Questions."""
        ...

    async def start(self, on_appended: OnAppended) -> None:
        """Open the store, and bring its schema up to date. Call it once, on the loop that will use it.

        Raises:
            StoreInUse: Another process has it.
            StoreTooNew: A newer server wrote it.
            StoreUnusable: It can't be opened, for another reason.
        """
        ...

    async def close(self) -> None:
        """Write all that was submitted, report it, and let go of everything. Repeating it is harmless."""
        ...

    async def check_writable(self) -> None:
        """Return if a write became durable just now; for readiness.

        Raises:
            JournalUnavailable: Nothing can be written.
        """
        ...
