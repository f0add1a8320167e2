"""Tasks that wait for an executor with room.

Rules: one queue for each requirement and selector of a namespace. Inside a queue runs take turns, each with its oldest task
first, so that a run with ten thousand tasks does not keep the others from their turn. A queue that was served goes behind
the others, because several may want the same executors.

A task that has ended is not searched for here. It is passed over when its turn comes, and goes with its run at the latest.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stepgraph_server.core.inputs import Selector
    from stepgraph_server.core.instants import Instant
    from stepgraph_server.core.state import Task
    from stepgraph_server.storage.records import RunKey


class Queue:
    """Tasks that the same executors can take."""

    __slots__ = ("_by_run", "namespace", "requirement", "selector", "size")

    def __init__(self, namespace: str, requirement: tuple[str, ...], selector: Selector) -> None:
        self.namespace = namespace
        self.requirement = requirement
        self.selector = selector
        #: How many entries it has, those of tasks that have ended included.
        self.size = 0
        self._by_run: OrderedDict[RunKey, deque[tuple[str, Instant]]] = OrderedDict()

    def add(self, key: RunKey, task: Task) -> None:
        """Put a task behind those of its run."""
        tasks = self._by_run.get(key)
        if tasks is None:
            tasks = self._by_run[key] = deque()
        tasks.append((task.id, task.queued_at))
        self.size += 1

    def take(
        self, count: int, still_waits: Callable[[RunKey, str], bool]
    ) -> Iterator[tuple[RunKey, str]]:
        """Take out up to `count` tasks that still wait, one of each run in turn, and all that is passed over."""
        while count > 0 and self._by_run:
            key, tasks = next(iter(self._by_run.items()))
            task_id, _ = tasks.popleft()
            self.size -= 1
            if not tasks:
                del self._by_run[key]
            if not still_waits(key, task_id):
                continue
            if tasks:
                self._by_run.move_to_end(key)
            count -= 1
            yield key, task_id

    def forget(self, key: RunKey) -> None:
        """Drop the tasks of a run."""
        self.size -= len(self._by_run.pop(key, ()))

    def oldest(self) -> Instant | None:
        """Return since when the task waits that waits longest."""
        return min((tasks[0][1] for tasks in self._by_run.values()), default=None)


class WaitingTasks:
    """All queues."""

    def __init__(self) -> None:
        self._queues: OrderedDict[tuple[str, tuple[str, ...], Selector], Queue] = OrderedDict()

    def add(self, key: RunKey, task: Task) -> None:
        """Let a task wait."""
        name = (key.namespace, task.key, task.selector)
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = Queue(*name)
        queue.add(key, task)

    def has(self, namespace: str, requirement: tuple[str, ...], selector: Selector) -> bool:
        """Whether tasks wait for what this one needs."""
        queue = self._queues.get((namespace, requirement, selector)) if self._queues else None
        return queue is not None and queue.size > 0

    def forget(self, key: RunKey) -> None:
        """Drop the tasks of a run, wherever they wait."""
        for queue in self._queues.values():
            queue.forget(key)

    def queues(self) -> list[Queue]:
        """Return the queues with something in them, the one that was served last at the end, and forget the others."""
        for name in [name for name, queue in self._queues.items() if not queue.size]:
            del self._queues[name]
        return list(self._queues.values())

    def served(self, queue: Queue) -> None:
        """Put a queue behind the others."""
        self._queues.move_to_end((queue.namespace, queue.requirement, queue.selector))

    def of_namespace(self, namespace: str) -> bool:
        """Whether anything waits in a namespace."""
        return any(queue.size and queue.namespace == namespace for queue in self._queues.values())

    def __len__(self) -> int:
        return sum(queue.size for queue in self._queues.values())
