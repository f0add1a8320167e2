"""Checking what a run starts with, and the failures that others report.

Rules: as in `values`, whose checks these are made of. A failure is trimmed rather than refused where it is only too long:
losing the news of a failure would be worse than losing its tail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph.v1 import failure_pb2
from stepgraph_server.core import names
from stepgraph_server.core.errors import Violation
from stepgraph_server.core.failures import MAX_CAUSES, MAX_MESSAGE_BYTES, cut
from stepgraph_server.core.values import (
    DEFAULT_LIMITS,
    check_decision,
    check_message,
    check_metadata,
    check_value,
    check_variables,
    no_id,
)

if TYPE_CHECKING:
    from stepgraph.v1 import state_pb2
    from stepgraph_server.core.values import ValueLimits

MAX_DETAILS: Final = 32
MAX_DETAIL_BYTES: Final = 1024
MAX_CAUSE_DEPTH: Final = 10

_CATEGORIES: Final = frozenset(failure_pb2.FailureCategory.values())


def check_state(
    state: state_pb2.GraphState, path: str, limits: ValueLimits = DEFAULT_LIMITS
) -> list[Violation]:
    """Return what is wrong with a state that a run is to start with."""
    found = check_variables(state.variables, f"{path}.variables", limits)
    for index, message in enumerate(state.conversation.messages):
        found += check_message(message, f"{path}.conversation.messages[{index}]", limits)
    found += check_metadata(state.conversation.metadata, f"{path}.conversation.metadata")
    found += check_metadata(state.metadata, f"{path}.metadata")
    if state.HasField("last_result") and state.last_result.WhichOneof("kind") is not None:
        found += check_value(state.last_result, f"{path}.last_result", limits)
    if state.HasField("last_error"):
        found += check_failure(state.last_error, f"{path}.last_error", limits)
    if state.HasField("parsed_decision"):
        found += check_decision(state.parsed_decision, f"{path}.parsed_decision", limits)
    if state.active_paradigm and not names.is_id(state.active_paradigm):
        found.append(no_id(f"{path}.active_paradigm"))
    return found


def check_failure(
    failure: failure_pb2.Failure, path: str, limits: ValueLimits = DEFAULT_LIMITS
) -> list[Violation]:
    """Return what is wrong with a failure that somebody reports. What is only too long is for `trim_failure`."""
    found: list[Violation] = []
    if not names.is_failure_code(failure.code):
        message = f"must be a code, {names.FAILURE_CODE_PATTERN}"
        found.append(Violation(path=f"{path}.code", message=message))
    if failure.category not in _CATEGORIES:
        message = "has a category that this server does not know"
        found.append(Violation(path=f"{path}.category", message=message, reason="UNKNOWN_VARIANT"))
    if failure.HasField("payload") and failure.payload.WhichOneof("kind") is not None:
        found += check_value(failure.payload, f"{path}.payload", limits)
    # It recurses as deep as the decoder let the message be, which is not deep.
    for index, cause in enumerate(failure.causes):
        found += check_failure(cause, f"{path}.causes[{index}]", limits)
    return found


def trim_failure(failure: failure_pb2.Failure) -> failure_pb2.Failure:
    """Return a copy that keeps the limits: long texts are cut with a mark, surplus details and causes left out."""
    return _trim(failure, MAX_CAUSE_DEPTH)


def _trim(failure: failure_pb2.Failure, depth: int) -> failure_pb2.Failure:
    trimmed = failure_pb2.Failure(
        code=failure.code,
        category=failure.category,
        message=cut(failure.message, MAX_MESSAGE_BYTES),
        source=cut(failure.source, MAX_DETAIL_BYTES),
        # By key: a map has no order, and the same report must always give the same failure.
        details={
            cut(key, MAX_DETAIL_BYTES): cut(failure.details[key], MAX_DETAIL_BYTES)
            for key in sorted(failure.details)[:MAX_DETAILS]
        },
    )
    if failure.HasField("retryable"):
        trimmed.retryable = failure.retryable
    if failure.HasField("payload"):
        trimmed.payload.CopyFrom(failure.payload)
    if depth > 0:
        trimmed.causes.extend([_trim(cause, depth - 1) for cause in failure.causes[:MAX_CAUSES]])
    return trimmed
