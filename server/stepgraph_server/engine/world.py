"""The world as the rules of one run see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepgraph_server.core.inputs import Placement, RunLimits, Selector, ToolOffer
    from stepgraph_server.core.state import Task
    from stepgraph_server.engine.dispatcher import Dispatcher
    from stepgraph_server.executors.catalogue import Catalogue
    from stepgraph_server.storage.records import RunKey


class RunWorld:
    """Executors and chance, for one run."""

    __slots__ = ("_catalogue", "_dispatcher", "_jitter", "_key", "limits")

    def __init__(  # the dispatcher passes each by name
        self,
        *,
        key: RunKey,
        dispatcher: Dispatcher,
        catalogue: Catalogue,
        limits: RunLimits,
        jitter: Callable[[], float],
    ) -> None:
        self._key = key
        self._dispatcher = dispatcher
        self._catalogue = catalogue
        self._jitter = jitter
        self.limits = limits

    def place(self, task: Task) -> Placement | None:
        """Reserve a slot for one attempt. A task that waits is placed only when its turn has come."""
        seat = self._dispatcher.place(self._key, task)
        return None if seat is None else seat.placement

    def capable(self, task: Task) -> int:
        """Count the executors that could take the task if they had room."""
        return self._dispatcher.capable(self._key, task)

    def tools(self, selector: Selector) -> tuple[ToolOffer, ...]:
        """Return the tools on offer."""
        return self._catalogue.tools(self._key.namespace, selector)

    def jitter(self) -> float:
        """Return a number from -1 to 1."""
        return self._jitter()
