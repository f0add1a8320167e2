"""What can go wrong for a caller: one root, and one class per decision that a caller can take.

Rules: a message says what went wrong, where, and what to do; the same facts are fields. A call that the
server refused is a `Refused`; a server that can't be reached is `Unreachable`; a run that was started and went
wrong is a `RunNotCompleted`, raised only where its result was asked for. This is the one place that reads
statuses of gRPC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.any_pb2 import Any as AnyMessage

    from stepgraph.v1.failure_pb2 import Failure
    from stepgraph.v1.run_pb2 import Run

M = TypeVar("M", bound=Message)

DOMAIN = "stepgraph"
_DETAILS_KEY = "grpc-status-details-bin"


class StepgraphError(Exception):
    """The root of all exceptions that this package raises on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A field of a request, or of a graph, that is wrong. `code` is empty where the server gave none."""

    path: str
    message: str
    code: str = ""

    def __str__(self) -> str:
        """Return the place and the trouble as one line."""
        text = f"{self.path}: {self.message}" if self.path else self.message
        return f"{text} [{self.code}]" if self.code else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A gRPC status with the details that stepgraph puts into it.

    `reason` is a name of `stepgraph.v1.ErrorReason` without its prefix, and empty if the status was not made by
    a stepgraph server: by a proxy, or by gRPC itself.
    """

    code: grpc.StatusCode
    message: str
    reason: str = ""
    metadata: dict[str, str]
    violations: tuple[Violation, ...] = ()
    retry_after_s: float | None = None

    @property
    def lost(self) -> bool:
        """Whether the call was lost on the way or not served now, so that the same call may be made again."""
        if self.reason:
            return self.code is grpc.StatusCode.UNAVAILABLE
        return self.code in _LOST_ON_THE_WAY

    @property
    def unreached(self) -> bool:
        """Whether nobody answered at all: gRPC's own words for a connection that there is not."""
        return self.code is grpc.StatusCode.UNAVAILABLE and not self.reason

    @property
    def retryable(self) -> bool:
        """Whether the same call may help later: it was lost, or the server said when to come again."""
        return self.lost or self.reason == "OVERLOADED"


#: What gRPC itself makes of broken connections, of proxies and of deadlines. A stepgraph server never sends these
#: without a reason.
_LOST_ON_THE_WAY = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.CANCELLED,
    }
)


class Refused(StepgraphError):
    """The server answered, and did not do it. `status` has the reason; the subclass says what kind it is."""

    def __init__(self, status: Status) -> None:
        super().__init__(_refusal_text(status))
        self.status = status

    @property
    def reason(self) -> str:
        """The name of the `ErrorReason`, such as "RUN_NOT_FOUND". Empty if the server gave none."""
        return self.status.reason

    @property
    def metadata(self) -> dict[str, str]:
        """The facts of the message, by name."""
        return self.status.metadata

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The fields that are wrong. For a broken graph the first problems."""
        return self.status.violations


class InvalidRequest(Refused):
    """Something in the request is wrong. Expected; mend what `violations` name and call again."""


class GraphInvalid(InvalidRequest):
    """The graph is broken. Expected; `violations` has the first problems, `validate_graph` lists all."""


class NotFound(Refused):
    """There is no such run, graph, question or value in the namespace. Expected."""


class AlreadyExists(Refused):
    """There is one already. Expected; choose another id, or none."""


class WrongState(Refused):
    """Not now: a run is over, or is not over yet, or someone else answered first. Expected; read it again."""


class TooMuch(Refused):
    """Something is larger, or more, than the server takes. Expected; send less, or store it first."""


class NotPermitted(Refused):
    """The server does not know the caller, or the caller may not do this."""


class NotSupported(Refused):
    """This server does not do this, or not yet."""


class ServerFault(Refused):
    """A fault of the server's, or a run that it can't read. Unexpected; its log has more under the incident id."""


class Unreachable(StepgraphError):
    """The server can't be reached, or does not serve now, and the retries are used up.

    What was asked may or may not have been done. The same call with the same `request_id` is safe.
    """

    def __init__(self, server: str, status: Status, *, tries: int = 1) -> None:
        super().__init__(_lost_text(server, status, f", after {tries} tries" if tries > 1 else ""))
        self.server = server
        self.status = status
        self.tries = tries


class RunNotCompleted(StepgraphError):
    """A run is over, and not COMPLETED. `run` is its row; `failure` says why."""

    def __init__(self, run: Run, verb: str, advice: str) -> None:
        failure = run.failure
        super().__init__(
            f"run {run.run_id} {verb}: {failure_text(failure)}. {advice.format(run_id=run.run_id)}"
        )
        self.run = run

    @property
    def failure(self) -> Failure:
        """Why."""
        return self.run.failure


class RunFailed(RunNotCompleted):
    """A run FAILED."""

    def __init__(self, run: Run) -> None:
        super().__init__(run, "failed", "See what happened: `stepgraph runs watch {run_id}`")


class RunCancelled(RunNotCompleted):
    """A run was CANCELLED, or a person said no."""

    def __init__(self, run: Run) -> None:
        super().__init__(run, "was cancelled", "See what happened: `stepgraph runs watch {run_id}`")


def failure_text(failure: Failure) -> str:
    """Return a failure as one line: its code, its message, and who said so."""
    text = failure.code or "no reason was given"
    if failure.message:
        text = f"{text}: {failure.message.rstrip('.')}"
    return f"{text} (from {failure.source})" if failure.source else text


def read_status(error: grpc.aio.AioRpcError) -> Status:
    """Return the status of a failed call with its details. Details that can't be read are left out."""
    details = status_pb2.Status()
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            # Whatever a proxy put there must not hide the status itself.
            try:
                details.ParseFromString(value)
            except DecodeError:
                details.Clear()
    return _with_details(error.code(), error.details() or "", details.details)


def refusal(status: Status) -> Refused:
    """Return the exception of the class that fits a status."""
    if status.reason == "GRAPH_INVALID":
        return GraphInvalid(status)
    return _CLASS_OF_CODE.get(status.code, ServerFault)(status)


_CLASS_OF_CODE: dict[grpc.StatusCode, type[Refused]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.FAILED_PRECONDITION: WrongState,
    grpc.StatusCode.ABORTED: WrongState,
    grpc.StatusCode.RESOURCE_EXHAUSTED: TooMuch,
    grpc.StatusCode.UNAUTHENTICATED: NotPermitted,
    grpc.StatusCode.PERMISSION_DENIED: NotPermitted,
    grpc.StatusCode.UNIMPLEMENTED: NotSupported,
}


def _with_details(code: grpc.StatusCode, message: str, details: Iterable[AnyMessage]) -> Status:
    reason = ""
    metadata: dict[str, str] = {}
    violations: list[Violation] = []
    retry_after_s: float | None = None
    for detail in details:
        if (info := _unpacked(detail, error_details_pb2.ErrorInfo())) and info.domain == DOMAIN:
            reason, metadata = info.reason, dict(info.metadata)
        elif bad := _unpacked(detail, error_details_pb2.BadRequest()):
            violations += [
                Violation(path=each.field, message=each.description, code=each.reason)
                for each in bad.field_violations
            ]
        elif retry := _unpacked(detail, error_details_pb2.RetryInfo()):
            delay = retry.retry_delay
            retry_after_s = max(0.0, delay.seconds + delay.nanos / 1e9)
    return Status(
        code=code,
        message=message,
        reason=reason,
        metadata=metadata,
        violations=tuple(violations),
        retry_after_s=retry_after_s,
    )


def _unpacked(detail: AnyMessage, into: M) -> M | None:
    try:
        return into if detail.Unpack(into) else None
    except DecodeError:
        return None


def _lost_text(server: str, status: Status, times: str) -> str:
    """Return what to say of a call that was lost. Only where nobody answered is the server said to be out of reach."""
    message = (status.message or status.code.name).rstrip(".")
    if status.unreached:
        return (
            f"can't reach the stepgraph server at {server}{times}: {message}. "
            "Is it running (`stepgraph serve`), and is the address right?"
        )
    if status.reason:
        reason = "" if message.startswith(status.reason) else f"{status.reason}: "
        return f"the stepgraph server at {server} does not serve now{times}: {reason}{message}. Try again in a moment."
    if status.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"the stepgraph server at {server} did not answer in time{times}: {message}. Is it overloaded?"
    return (
        f"the stepgraph server at {server}, or a proxy before it, broke the call off{times}: "
        f"{status.code.name}: {message}. The same call may be made again."
    )


def _refusal_text(status: Status) -> str:
    text = status.message or f"the server refused the call with {status.code.name}"
    # The server's message may begin with the reason; people need it once.
    if status.reason and not text.startswith(status.reason):
        text = f"{status.reason}: {text}"
    if len(status.violations) == 1 and status.violations[0].message in text:
        # It was said already; only the place is news.
        path = status.violations[0].path
        return f"{text} (at {path})" if path else text
    return "\n".join([text, *(f"  {violation}" for violation in status.violations)])
