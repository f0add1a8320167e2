"""What there is at a moment: queues, attempts, streams.

Rules: taken on the loop, whole, and never changed afterwards. So whoever exports it, in a thread of its own, sees what belongs
together, and no thread looks into what the loop is changing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PERIOD_S: Final = 1.0
"""How often it is taken while metrics are on. It costs a look at each queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What there is.

    Attributes:
        queued_tasks: Tasks that wait for an executor with room.
        oldest_task_s: For how long the task waits that waits longest; 0 if none does.
        attempts: Attempts that executors have.
        runs_in_memory: Runs that something is under way with.
        runs_loading: Runs that wait to be read from the journal.
        waiting_appends: Appends that wait to be written.
        waiting_bytes: How large they are.
        sessions: Streams of executors.
        watchers: Streams of watchers.
        sent_tasks: Attempts that were sent to executors since the start.
        verdicts: Results by what became of them, since the start.
    """

    queued_tasks: int = 0
    oldest_task_s: float = 0.0
    attempts: int = 0
    runs_in_memory: int = 0
    runs_loading: int = 0
    waiting_appends: int = 0
    waiting_bytes: int = 0
    sessions: int = 0
    watchers: int = 0
    sent_tasks: int = 0
    verdicts: tuple[tuple[str, int], ...] = ()
