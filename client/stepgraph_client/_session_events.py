"""What comes out of an executor's half of a session. Values only; the union is closed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepgraph.v1 import executor_service_pb2 as pb
    from stepgraph.v1 import task_pb2

#: An attempt: the full id of its task, and its number.
Attempt: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who an executor is, from its start to its end.

    `instance_token` is a secret of the process: it proves that attempts are its own.
    """

    executor_id: str
    instance_token: bytes
    namespace: str = ""
    labels: Mapping[str, str]
    client_name: str = ""

    def __repr__(self) -> str:
        """Return everything but the secret."""
        return f"Identity({self.namespace or 'default'}/{self.executor_id})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcomed:
    """The server took the hello.

    Attributes:
        welcome: What it said.
        lost: Attempts that are not wanted any more. Stop them; they are not reported.
        dropped: How many kept results were not wanted any more.
    """

    welcome: pb.Welcome
    lost: Sequence[Attempt]
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksReceived:
    """Attempts to work on. Each one is to be finished or given back."""

    tasks: Sequence[task_pb2.Task]


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """Attempts to stop, all of them held. Finish them, within the grace if you can."""

    attempts: Sequence[Attempt]
    reason: str
    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Acked:
    """What became of results. They are forgotten."""

    acks: Sequence[pb.Ack]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRequested:
    """The server sends nothing more on this stream. Finish what there is, then connect again."""

    reason: str
    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """The server can't take something.

    Attributes:
        reject: What, and why.
        failed: Results that were in a frame that it can't take; they are reported as failures instead.
        dropped: Results whose failure it couldn't take either.
    """

    reject: pb.Reject
    failed: Sequence[Attempt] = ()
    dropped: Sequence[Attempt] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PingReceived:
    """The server asked whether anybody is there; the answer is ready to be sent."""

    nonce: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSilent:
    """Nothing was heard for longer than the limit. End the stream, and connect again."""

    silence_s: float


ExecutorEvent: TypeAlias = (
    Welcomed
    | TasksReceived
    | CancelRequested
    | Acked
    | DrainRequested
    | Rejected
    | PingReceived
    | ServerSilent
)
