"""What a session is held under, and what comes out of it.

Rules: values only. The union is closed; one event is at most one frame.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from stepgraph_server.core.instants import SECOND, Span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepgraph.v1 import executor_service_pb2 as pb
    from stepgraph_server.core.errors import Violation
    from stepgraph_server.executors.capabilities import Abilities


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the server announces in its welcome, and holds executors to."""

    ping_interval: Span = Span(5 * SECOND)
    silence_limit: Span = Span(15 * SECOND)
    lost_grace: Span = Span(30 * SECOND)
    cancel_grace: Span = Span(10 * SECOND)
    max_inline_value_bytes: int = 256 * 1024
    max_stored_value_bytes: int = 64 * 1024 * 1024
    max_frame_bytes: int = 4 * 1024 * 1024
    max_labels: int = 64
    server_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HelloReceived:
    """An executor introduced itself, and it is taken. `ignored` says which capabilities are not known here."""

    namespace: str
    executor_id: str
    instance: str
    labels: Mapping[str, str]
    abilities: Abilities
    max_in_flight: int
    held: Sequence[pb.AttemptRef]
    unacknowledged: Sequence[pb.AttemptRef]
    client_name: str
    ignored: Sequence[Violation] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptsAccepted:
    """Attempts have arrived."""

    attempts: Sequence[pb.AttemptRef]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomesReceived:
    """Attempts have ended. What can't be taken has been made a failure of its attempt, and rejected besides."""

    outcomes: Sequence[pb.AttemptOutcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReceived:
    """Attempts show progress."""

    items: Sequence[pb.AttemptProgress]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityChanged:
    """It takes so many attempts at once from now on."""

    max_in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilitiesChanged:
    """It can do this from now on."""

    abilities: Abilities


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRejected:
    """It does not take an attempt."""

    attempt: pb.AttemptRef
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ByeReceived:
    """It is done, and holds nothing more."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClosed:
    """The session is over, for this reason of ErrorReason."""

    reason: str
    message: str
    metadata: Mapping[str, str]
    violations: Sequence[Violation] = field(default=())


SessionEvent: TypeAlias = (
    HelloReceived
    | AttemptsAccepted
    | OutcomesReceived
    | ProgressReceived
    | CapacityChanged
    | CapabilitiesChanged
    | AttemptRejected
    | ByeReceived
    | SessionClosed
)
