"""An outlet that remembers what was said."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepgraph.v1 import executor_service_pb2 as pb
    from stepgraph_server.core.instants import Span
    from stepgraph_server.executors.seats import Ack


@dataclass(slots=True)
class RecordingOutlet:
    """Remembers everything, sends nothing."""

    tasks: list[bytes] = field(default_factory=list)
    cancels: list[tuple[list[pb.AttemptRef], str]] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    rejects: list[tuple[pb.AttemptRef, str, str]] = field(default_factory=list)
    drained: str | None = None
    closed: tuple[str, str, dict[str, str]] | None = None

    def send_tasks(self, tasks: Sequence[bytes]) -> None:
        """Remember tasks."""
        self.tasks.extend(tasks)

    def send_cancels(self, attempts: Sequence[pb.AttemptRef], reason: str, grace: Span) -> None:
        """Remember cancels."""
        del grace
        self.cancels.append((list(attempts), reason))

    def send_acks(self, acks: Sequence[Ack]) -> None:
        """Remember verdicts."""
        self.acks.extend(acks)

    def reject(self, attempt: pb.AttemptRef, reason: str, message: str) -> None:
        """Remember a reject."""
        self.rejects.append((attempt, reason, message))

    def drain(self, reason: str, grace: Span) -> None:
        """Remember the drain."""
        del grace
        self.drained = reason

    def close(self, reason: str, message: str, metadata: Mapping[str, str]) -> None:
        """Remember the first end."""
        self.closed = self.closed or (reason, message, dict(metadata))
