"""Failures of the server's own making, and their codes.

Rules: a `Failure` is data that nobody changes after it was built. Every code that the server gives stands in this
file, so that the table in protos/README.md can be checked against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph.v1 import failure_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_MESSAGE_BYTES: Final = 8 * 1024
MAX_CAUSES: Final = 10

BUSINESS: Final = pb.FAILURE_CATEGORY_BUSINESS
TECHNICAL: Final = pb.FAILURE_CATEGORY_TECHNICAL
TIME_LIMIT: Final = pb.FAILURE_CATEGORY_TIME_LIMIT
CANCELLED: Final = pb.FAILURE_CATEGORY_CANCELLED
LIMIT: Final = pb.FAILURE_CATEGORY_LIMIT

#: Every code of the server's, with its category and whether another try may help.
CODES: Final[dict[str, tuple[pb.FailureCategory.ValueType, bool]]] = {
    "ABORTED_BY_PERSON": (CANCELLED, False),
    "CANCELLED": (CANCELLED, False),
    "CONDITION_FAILED": (BUSINESS, False),
    "DEAD_END": (BUSINESS, False),
    "DUPLICATE_LABEL": (BUSINESS, False),
    "EMPTY_AWAIT": (BUSINESS, False),
    "EMPTY_SPAWN": (BUSINESS, False),
    "EXECUTOR_CANCELLED": (TECHNICAL, True),
    "EXPRESSION_FAILED": (BUSINESS, False),
    "FAN_OUT_LIMIT": (LIMIT, False),
    "GOTO_CONFLICT": (BUSINESS, False),
    "GRAPH_INVALID": (BUSINESS, False),
    "GRAPH_NOT_FOUND": (BUSINESS, False),
    "HANDOFF_MISSING": (BUSINESS, False),
    "HANDOFF_SPENT": (BUSINESS, False),
    "IDLE_LIMIT": (TIME_LIMIT, True),
    "INTERRUPT_DEADLINE": (TIME_LIMIT, False),
    "SIGNAL_TIMEOUT": (TIME_LIMIT, False),
    "MAX_ITERATIONS": (LIMIT, False),
    "MAX_TURNS": (LIMIT, False),
    "NOT_YET_SUPPORTED": (BUSINESS, False),
    "NO_DECISION": (BUSINESS, False),
    "OUTPUT_MISSING": (BUSINESS, False),
    "OUTPUT_SCHEMA": (BUSINESS, True),
    "PARADIGM_UNKNOWN": (BUSINESS, False),
    "PAYLOAD_TOO_LARGE": (LIMIT, False),
    "QUEUE_LIMIT": (TIME_LIMIT, False),
    "REDUCER_TYPE": (BUSINESS, False),
    "REPLY_CUT_OFF": (LIMIT, False),
    "REPLY_REFUSED": (BUSINESS, False),
    "RESULT_INVALID": (TECHNICAL, False),
    "RUN_LIMIT": (TIME_LIMIT, True),
    "RUN_EXISTS": (BUSINESS, False),
    "RUN_QUARANTINED": (TECHNICAL, False),
    "RUN_TOO_LARGE": (LIMIT, False),
    "RUN_TREE_TOO_DEEP": (LIMIT, False),
    "RUN_TREE_TOO_LARGE": (LIMIT, False),
    "SPAWN_FAILED": (BUSINESS, False),
    "STATE_CONFLICT": (BUSINESS, False),
    "STEP_REPLY_INVALID": (BUSINESS, False),
    "TASK_LOST": (TECHNICAL, False),
    "TEMPLATE_FAILED": (BUSINESS, False),
    "TIME_LIMIT": (TIME_LIMIT, False),
    "TOKEN_BUDGET_SPENT": (LIMIT, False),
    "TOKEN_TAKEN": (BUSINESS, False),
    "TOOL_CALL_AMBIGUOUS": (BUSINESS, False),
    "TOOL_ERROR": (BUSINESS, False),
    "TOTAL_LIMIT": (TIME_LIMIT, False),
}


def failure(
    code: str,
    message: str,
    *,
    source: str = "",
    details: dict[str, str] | None = None,
    causes: Iterable[pb.Failure] = (),
) -> pb.Failure:
    """Build a failure of the server's. `code` must be in CODES; long messages are cut, at most 10 causes are kept."""
    category, retryable = CODES[code]
    return pb.Failure(
        code=code,
        category=category,
        retryable=retryable,
        message=cut(message),
        source=source,
        details=details or {},
        causes=list(causes)[:MAX_CAUSES],
    )


def cut(text: str, max_bytes: int = MAX_MESSAGE_BYTES) -> str:
    """Return `text`, cut to `max_bytes` of UTF-8 with a mark if it is longer."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= max_bytes:
        return text
    return raw[: max_bytes - 16].decode("utf-8", "ignore") + "… (cut)"
