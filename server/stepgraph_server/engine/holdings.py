"""What executors have: the slots that are taken at a seat, and the attempts that an instance owes an answer for.

Rules: a slot belongs to a session. It is taken before an attempt is recorded, and stays taken until the executor reports the
attempt, whatever has become of it for its run. An attempt belongs to an instance, over all its sessions, from when its
assignment is durable until its end is: so this is what the journals say, even while a run in memory is ahead of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stepgraph.v1 import executor_service_pb2
    from stepgraph_server.core.state import Task
    from stepgraph_server.executors.registry import Registry
    from stepgraph_server.executors.seats import LostInstance, Seat
    from stepgraph_server.storage.records import RunKey


Attempt: TypeAlias = tuple[str, int]
"""An attempt as executors name it: the full id of its task, and its number. They come so in frames, and are looked up as they are."""


class Holdings:
    """Slots and attempts of all executors."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._slots: dict[Seat, set[Attempt]] = {}
        #: By namespace and instance: each attempt with the executor that has it.
        self._attempts: dict[tuple[str, str], dict[Attempt, str]] = {}

    # Slots

    def reserve(self, key: RunKey, task: Task) -> Seat | None:
        """Take a slot for the next attempt of a task; None if no executor has room."""
        seat = self._registry.reserve(key.namespace, task.key, task.selector, task.prefers)
        if seat is not None:
            slots = self._slots.get(seat)
            if slots is None:
                slots = self._slots[seat] = set()
            slots.add((f"{key.run_id}/{task.id}", task.attempt + 1))
        return seat

    def has_slot(self, seat: Seat, attempt: Attempt) -> bool:
        """Whether an attempt has a slot at a seat."""
        slots = self._slots.get(seat)
        return slots is not None and attempt in slots

    def free(self, seat: Seat, attempt: Attempt) -> None:
        """Give the slot of an attempt back. Harmless if it has none."""
        slots = self._slots.get(seat)
        if slots is not None and attempt in slots:
            slots.discard(attempt)
            self._registry.release(seat)

    def free_all(self, seat: Seat, outcomes: Sequence[executor_service_pb2.AttemptOutcome]) -> None:
        """Give back the slots of all that a frame reports."""
        slots = self._slots.get(seat)
        if slots:
            taken = len(slots)
            slots.difference_update([(outcome.task_id, outcome.attempt) for outcome in outcomes])
            if taken > len(slots):
                self._registry.release(seat, taken - len(slots))

    def seated(self, seat: Seat, held: Iterable[Attempt]) -> None:
        """Let a new session begin with the slots of what is held; those of the executor's older sessions are gone."""
        for other in [other for other in self._slots if _same_executor(other, seat)]:
            del self._slots[other]
        self._slots[seat] = set(held)

    # Attempts

    def assigned(self, namespace: str, task: Task, attempt: Attempt) -> None:
        """Note that an instance has an attempt. Repeating it is harmless."""
        known = self._attempts.get((namespace, task.instance))
        if known is None:
            known = self._attempts[namespace, task.instance] = {}
        known[attempt] = task.executor_id

    def over(self, namespace: str, instance: str, attempt: Attempt) -> None:
        """Note that an attempt has ended for its run. Harmless if it is not known."""
        known = self._attempts.get((namespace, instance))
        if known is not None:
            known.pop(attempt, None)

    def has(self, seat: Seat, attempt: Attempt) -> bool:
        """Whether an attempt is the executor's of this seat."""
        known = self._attempts.get((seat.namespace, seat.instance))
        return known is not None and known.get(attempt) == seat.executor_id

    def of_seat(self, seat: Seat) -> list[Attempt]:
        """Return the attempts of the executor of a seat."""
        known = self._attempts.get((seat.namespace, seat.instance), {})
        return [attempt for attempt, executor in known.items() if executor == seat.executor_id]

    # What is gone

    def lose(self, lost: LostInstance) -> list[Attempt]:
        """Forget an instance with its slots, and return the attempts that it had."""
        for seat in [
            seat
            for seat in self._slots
            if (seat.namespace, seat.executor_id, seat.instance)
            == (lost.namespace, lost.executor_id, lost.instance)
        ]:
            del self._slots[seat]
        name = (lost.namespace, lost.instance)
        known = self._attempts.pop(name, {})
        # Two executors of one process may have said the same token; each loses its own.
        kept = {
            attempt: executor for attempt, executor in known.items() if executor != lost.executor_id
        }
        if kept:
            self._attempts[name] = kept
        return [attempt for attempt in known if attempt not in kept]

    def forget_run(self, key: RunKey) -> None:
        """Forget the attempts of a run, and free the slots of those that no executor has heard of."""
        prefix = f"{key.run_id}/"
        for seat, slots in self._slots.items():
            if seat.namespace != key.namespace:
                continue
            for attempt in [slot for slot in slots if slot[0].startswith(prefix)]:
                if not self.has(seat, attempt):
                    self.free(seat, attempt)
        for (namespace, _), known in self._attempts.items():
            if namespace == key.namespace:
                for attempt in [attempt for attempt in known if attempt[0].startswith(prefix)]:
                    del known[attempt]

    def __len__(self) -> int:
        return sum(len(slots) for slots in self._slots.values())


def _same_executor(seat: Seat, other: Seat) -> bool:
    return (
        seat is not other
        and seat.namespace == other.namespace
        and seat.placement == other.placement
    )
