"""An engine that remembers what sessions told it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepgraph_server.executors.seats import Wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph.v1 import executor_service_pb2 as pb
    from stepgraph_server.executors.seats import LostInstance, Seat


@dataclass(slots=True)
class RecordingWork:
    """Remembers everything; wants all that is listed, unless told otherwise."""

    seats: list[Seat] = field(default_factory=list)
    held: list[pb.AttemptRef] = field(default_factory=list)
    unacknowledged: list[pb.AttemptRef] = field(default_factory=list)
    wanted: Wanted | None = None
    lost_instances: list[LostInstance] = field(default_factory=list)
    accepts: list[pb.AttemptRef] = field(default_factory=list)
    results: list[pb.AttemptOutcome] = field(default_factory=list)
    shown: list[pb.AttemptProgress] = field(default_factory=list)
    rejects: list[tuple[pb.AttemptRef, str, str]] = field(default_factory=list)
    room_at: list[Seat] = field(default_factory=list)

    async def joined(
        self, seat: Seat, held: Sequence[pb.AttemptRef], unacknowledged: Sequence[pb.AttemptRef]
    ) -> Wanted:
        """Want everything, or what `wanted` says."""
        self.seats.append(seat)
        self.held = list(held)
        self.unacknowledged = list(unacknowledged)
        return self.wanted or Wanted(attempts=held, results=unacknowledged)

    def lost(self, lost: LostInstance) -> None:
        """Remember."""
        self.lost_instances.append(lost)

    def accepted(self, seat: Seat, attempts: Sequence[pb.AttemptRef]) -> None:
        """Remember."""
        del seat
        self.accepts.extend(attempts)

    def outcomes(self, seat: Seat, outcomes: Sequence[pb.AttemptOutcome]) -> None:
        """Remember."""
        del seat
        self.results.extend(outcomes)

    def progress(self, seat: Seat, items: Sequence[pb.AttemptProgress]) -> None:
        """Remember."""
        del seat
        self.shown.extend(items)

    def rejected(self, seat: Seat, attempt: pb.AttemptRef, reason: str, message: str) -> None:
        """Remember."""
        del seat
        self.rejects.append((attempt, reason, message))

    def room(self, seat: Seat) -> None:
        """Remember."""
        self.room_at.append(seat)
