"""The world as the rules of one run see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepgraph_server.core.inputs import Placement, RunLimits, Selector, ToolOffer
    from stepgraph_server.core.state import Task
    from stepgraph_server.executors.catalogue import Catalogue
    from stepgraph_server.storage.records import RunKey


class Places(Protocol):
    """Room at executors, for all runs; the dispatcher has it."""

    def place(self, key: RunKey, task: Task) -> Placement | None:
        """Reserve a slot for the next attempt of a task; None if no executor has room, or others wait for it."""
        ...

    def capable(self, key: RunKey, task: Task) -> int:
        """Count the executors that could take the task if they had room."""
        ...


class RunWorld:
    """Executors and chance, for one run."""

    __slots__ = ("_catalogue", "_jitter", "_key", "_places", "limits")

    def __init__(  # the dispatcher passes each by name
        self,
        *,
        key: RunKey,
        places: Places,
        catalogue: Catalogue,
        limits: RunLimits,
        jitter: Callable[[], float],
    ) -> None:
        self._key = key
        self._places = places
        self._catalogue = catalogue
        self._jitter = jitter
        self.limits = limits

    def place(self, task: Task) -> Placement | None:
        """Reserve a slot for one attempt. A task that waits is placed only when its turn has come."""
        return self._places.place(self._key, task)

    def capable(self, task: Task) -> int:
        """Count the executors that could take the task if they had room."""
        return self._places.capable(self._key, task)

    def tools(self, selector: Selector) -> tuple[ToolOffer, ...]:
        """Return the tools on offer."""
        return self._catalogue.tools(self._key.namespace, selector)

    def requires_approval(self, task: Task) -> bool:
        """Whether an executor that could take the task says that a person must approve its tool."""
        key = (task.key[1], task.key[2])
        return key in self._catalogue.approvals(self._key.namespace, task.selector)

    def jitter(self) -> float:
        """Return a number from -1 to 1."""
        return self._jitter()
