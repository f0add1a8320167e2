"""What sessions tell the engine. The port is owned here and implemented by the engine.

Rules: one call per frame, never per item: a frame is handled in one turn of the loop, and leads to one decision per run.
Ids in frames are full: `<run id>/<task id>`; a run id has no `/`, so `split_task_id` cuts at the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph.v1 import executor_service_pb2
    from stepgraph_server.executors.seats import LostInstance, Seat, Wanted


class Work(Protocol):
    """What becomes of what executors say. All calls come on the thread of the event loop, none may block."""

    async def joined(
        self,
        seat: Seat,
        held: Sequence[executor_service_pb2.AttemptRef],
        unacknowledged: Sequence[executor_service_pb2.AttemptRef],
    ) -> Wanted:
        """Say what is still wanted of an executor that has connected; it is welcomed with the answer.

        Attempts that are assigned to this instance and are in neither list are lost: FORGOTTEN. The attempts that are
        wanted take a slot of the new seat each, and are to be released there; slots of the instance's older seats are
        gone. Until this returns the seat has no room, and afterwards `room` is called.
        """
        ...

    def lost(self, lost: LostInstance) -> None:
        """Every attempt that is assigned to this instance is lost, with the reason that is given. Idempotent."""
        ...

    def accepted(self, seat: Seat, attempts: Sequence[executor_service_pb2.AttemptRef]) -> None:
        """Attempts have arrived at the executor."""
        ...

    def outcomes(self, seat: Seat, outcomes: Sequence[executor_service_pb2.AttemptOutcome]) -> None:
        """Attempts have ended. Each one is to be acknowledged once its verdict is durable, also one that is stale.

        They are parts of one received frame: who keeps one copies it, or the frame stays in memory.
        """
        ...

    def progress(self, seat: Seat, items: Sequence[executor_service_pb2.AttemptProgress]) -> None:
        """Attempts show progress."""
        ...

    def rejected(
        self, seat: Seat, attempt: executor_service_pb2.AttemptRef, reason: str, message: str
    ) -> None:
        """The executor does not take an attempt."""
        ...

    def room(self, seat: Seat) -> None:
        """This executor may take work now that it could not take before.

        It is called in the middle of whatever made room, `Registry.release` for one: take a note, do nothing else.
        """
        ...


def split_task_id(task_id: str) -> tuple[str, str]:
    """Return the run id and the task's id within the run; the latter is empty if there is no `/`."""
    run_id, _, task = task_id.partition("/")
    return run_id, task
