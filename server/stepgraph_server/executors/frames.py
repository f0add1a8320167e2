"""What frames of executors must be like.

Rules: pure checks. A frame that is wrong as a whole raises ViolationError; of a batch only the items that are wrong are
taken out, because one bad result must not hold up the others.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from google.protobuf.message import Message

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import failure_pb2
from stepgraph_server.core.errors import Violation
from stepgraph_server.core.names import ID_PATTERN, is_id
from stepgraph_server.executors.capabilities import declare, unknown_kinds
from stepgraph_server.executors.session_events import HelloReceived
from stepgraph_server.executors.violations import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

EXECUTOR_ID_PATTERN: Final = "[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}"
MAX_TASK_ID_CHARACTERS: Final = 512
MIN_TOKEN_BYTES: Final = 16
MAX_TOKEN_BYTES: Final = 64
MAX_LABEL_CHARACTERS: Final = 128
MAX_CUSTOM_PROGRESS_BYTES: Final = 64 * 1024
DEFAULT_NAMESPACE: Final = "default"

_EXECUTOR_ID: Final = re.compile(EXECUTOR_ID_PATTERN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked(Generic[T]):
    """Of a batch: what can be taken, and the rejects that answer the rest."""

    items: Sequence[T]
    rejects: Sequence[pb.Reject]


# ---- hello -----------------------------------------------------------------------------------


def check_hello(hello: pb.Hello, version: int, max_labels: int) -> HelloReceived:
    """Take a hello.

    Raises:
        ViolationError: A field is wrong.
    """
    if hello.protocol_version != version:
        refuse(
            "hello.protocol_version",
            f"this server speaks version {version}, not {hello.protocol_version}",
        )
    if _EXECUTOR_ID.fullmatch(hello.executor_id) is None:
        refuse("hello.executor_id", f"{hello.executor_id[:80]!r} is not {EXECUTOR_ID_PATTERN}")
    if not MIN_TOKEN_BYTES <= len(hello.instance_token) <= MAX_TOKEN_BYTES:
        refuse(
            "hello.instance_token",
            f"must have {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} bytes, not {len(hello.instance_token)}",
        )
    namespace = hello.namespace or DEFAULT_NAMESPACE
    if not is_id(namespace):
        refuse("hello.namespace", f"{namespace[:80]!r} is not {ID_PATTERN}")
    labels = dict(hello.labels)
    _check_labels(labels, max_labels)
    _check_refs(hello.held_attempts, "hello.held_attempts")
    _check_refs(hello.unacknowledged_results, "hello.unacknowledged_results")
    known, ignored = without_unknown(hello.capabilities, "hello.capabilities")
    return HelloReceived(
        namespace=namespace,
        executor_id=hello.executor_id,
        instance=hashlib.sha256(hello.instance_token).hexdigest(),
        labels=labels,
        abilities=declare(known, path="hello.capabilities"),
        max_in_flight=hello.max_in_flight,
        held=hello.held_attempts,
        unacknowledged=hello.unacknowledged_results,
        client_name=hello.client_name[:MAX_LABEL_CHARACTERS],
        ignored=ignored,
    )


def without_unknown(
    capabilities: Sequence[pb.Capability], path: str
) -> tuple[Sequence[pb.Capability], list[Violation]]:
    """Return the capabilities of known kinds, and what is wrong with the others.

    An executor may be newer than the server. It is told, and works with what both know.
    """
    unknown = unknown_kinds(capabilities)
    if not unknown:
        return capabilities, []
    known = [item for index, item in enumerate(capabilities) if index not in set(unknown)]
    message = "no kind is set, or one that this server does not know; it is ignored"
    return known, [
        Violation(path=f"{path}[{index}]", message=message, reason="UNKNOWN_VARIANT")
        for index in unknown
    ]


def _check_labels(labels: dict[str, str], max_labels: int) -> None:
    if len(labels) > max_labels:
        refuse("hello.labels", f"there are {len(labels)} labels, of at most {max_labels}")
    for name, value in labels.items():
        if not 0 < len(name) <= MAX_LABEL_CHARACTERS or len(value) > MAX_LABEL_CHARACTERS:
            refuse(
                f"hello.labels[{name[:80]!r}]",
                f"names have 1 to {MAX_LABEL_CHARACTERS} characters, values at most {MAX_LABEL_CHARACTERS}",
            )


# ---- attempts --------------------------------------------------------------------------------


def check_attempt(attempt: pb.AttemptRef, path: str) -> None:
    """Check a reference to an attempt.

    Raises:
        ViolationError: It can't be one.
    """
    problem = _attempt_problem(attempt.task_id, attempt.attempt)
    if problem:
        refuse(path, problem)


def check_attempts(accepted: pb.Accepted) -> Sequence[pb.AttemptRef]:
    """Take the attempts of an accepted frame.

    Raises:
        ViolationError: One of them can't be an attempt.
    """
    _check_refs(accepted.attempts, "accepted.attempts")
    return accepted.attempts


def _check_refs(refs: Sequence[pb.AttemptRef], path: str) -> None:
    for index, ref in enumerate(refs):
        problem = _attempt_problem(ref.task_id, ref.attempt)
        if problem:
            refuse(f"{path}[{index}]", problem)


def _attempt_problem(task_id: str, attempt: int) -> str:
    if "/" not in task_id or len(task_id) > MAX_TASK_ID_CHARACTERS:
        return f"{task_id[:80]!r} is not the full id of a task"
    return "" if attempt else "attempts count from 1"


# ---- results ---------------------------------------------------------------------------------


def check_outcomes(results: pb.Results, size: int, limit: int) -> Checked[pb.AttemptOutcome]:
    """Take the outcomes of a results frame of `size` bytes, whose inline values may have `limit` bytes each.

    An outcome that can't be taken becomes a failure of its attempt, so that the run does not wait for what the executor
    believes to have sent.

    Raises:
        ViolationError: An outcome does not name an attempt.
    """
    replaced: dict[int, pb.AttemptOutcome] = {}
    rejects: list[pb.Reject] = []
    for index, outcome in enumerate(results.outcomes):
        problem = _attempt_problem(outcome.task_id, outcome.attempt)
        if problem:
            refuse(f"results.outcomes[{index}]", problem)
        # A frame below the limit has nothing above it: most frames are never looked through.
        failure = _outcome_failure(outcome, limit, look=size > limit)
        if failure is not None:
            replaced[index] = pb.AttemptOutcome(
                task_id=outcome.task_id,
                attempt=outcome.attempt,
                failed=pb.AttemptOutcome.Failed(failure=failure),
            )
            rejects.append(_reject_of(outcome.task_id, outcome.attempt, failure))
    if not replaced:
        return Checked(items=results.outcomes, rejects=rejects)
    items = [replaced.get(index, outcome) for index, outcome in enumerate(results.outcomes)]
    return Checked(items=items, rejects=rejects)


def _reject_of(task_id: str, attempt: int, failure: failure_pb2.Failure) -> pb.Reject:
    return pb.Reject(
        attempt=pb.AttemptRef(task_id=task_id, attempt=attempt),
        reason=failure.code,
        message=failure.message,
        field=failure.details["field"],
    )


def _outcome_failure(
    outcome: pb.AttemptOutcome, limit: int, *, look: bool
) -> failure_pb2.Failure | None:
    kind = outcome.WhichOneof("outcome")
    if kind is None:
        return failure_pb2.Failure(
            code="RESULT_INVALID",
            category=failure_pb2.FAILURE_CATEGORY_TECHNICAL,
            retryable=False,
            message="the outcome is unset, or of a kind that this server does not know",
            details={"field": "outcome"},
        )
    found = _oversize(outcome, limit) if look and outcome.ByteSize() > limit else None
    if found is None:
        return None
    path, size = found
    return failure_pb2.Failure(
        code="PAYLOAD_TOO_LARGE",
        category=failure_pb2.FAILURE_CATEGORY_LIMIT,
        retryable=False,
        message=f"{path} has {size} bytes, of at most {limit}: store it, and send a reference",
        details={"field": path, "limit_bytes": str(limit), "size_bytes": str(size)},
    )


def _oversize(message: Message, limit: int, path: str = "") -> tuple[str, int] | None:
    """Find a text or bytes above the limit, in a message of any type: the first path, and its size."""
    for descriptor, content in message.ListFields():
        here = f"{path}.{descriptor.name}" if path else descriptor.name
        is_map = descriptor.message_type is not None and (
            descriptor.message_type.GetOptions().map_entry
        )
        items = content.values() if is_map else content if descriptor.is_repeated else (content,)
        for item in items:
            if isinstance(item, Message):
                found = _oversize(item, limit, here) if item.ByteSize() > limit else None
                if found is not None:
                    return found
            elif isinstance(item, (str, bytes)):
                size = len(item.encode() if isinstance(item, str) else item)
                if size > limit:
                    return here, size
    return None


# ---- progress --------------------------------------------------------------------------------


def check_progress(report: pb.ProgressReport, size: int) -> Checked[pb.AttemptProgress]:
    """Take the items of a progress frame of `size` bytes; what can't be shown is taken out and rejected.

    Raises:
        ViolationError: An item does not name an attempt.
    """
    bad: dict[int, pb.Reject] = {}
    for index, item in enumerate(report.items):
        problem = _attempt_problem(item.task_id, item.attempt)
        if problem:
            refuse(f"progress.items[{index}]", problem)
        violation = _progress_violation(item, check_sizes=size > MAX_CUSTOM_PROGRESS_BYTES)
        if violation is not None:
            bad[index] = pb.Reject(
                attempt=pb.AttemptRef(task_id=item.task_id, attempt=item.attempt),
                reason=violation.reason,
                message=violation.message,
                field=violation.path,
            )
    if not bad:
        return Checked(items=report.items, rejects=())
    items = [item for index, item in enumerate(report.items) if index not in bad]
    return Checked(items=items, rejects=list(bad.values()))


def _progress_violation(item: pb.AttemptProgress, *, check_sizes: bool) -> Violation | None:
    for index, progress in enumerate(item.progress):
        kind = progress.WhichOneof("kind")
        if kind is None:
            message = "the progress is unset, or of a kind that this server does not know"
            return Violation(path=f"progress[{index}]", message=message, reason="UNKNOWN_VARIANT")
        if check_sizes and kind == "custom" and progress.ByteSize() > MAX_CUSTOM_PROGRESS_BYTES:
            message = f"has {progress.ByteSize()} bytes, of at most {MAX_CUSTOM_PROGRESS_BYTES}"
            return Violation(
                path=f"progress[{index}].custom", message=message, reason="PAYLOAD_TOO_LARGE"
            )
    return None
