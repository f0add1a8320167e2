"""What a function of an executor raises to say how its task ends.

Rules: whatever else it raises is a fault: a TECHNICAL failure EXECUTOR_ERROR with the exception's type and message. The
traceback goes to the executor's own log and never into a report.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from google.protobuf.duration_pb2 import Duration

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import failure_pb2
from stepgraph_client.durations import Span, to_duration
from stepgraph_client.errors import StepgraphError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepgraph.v1 import llm_pb2

Category: TypeAlias = Literal["business", "technical", "limit"]

EXECUTOR_ERROR: Final = "EXECUTOR_ERROR"
RESULT_INVALID: Final = "RESULT_INVALID"
MAX_MESSAGE_BYTES: Final = 8 * 1024
CODE_PATTERN: Final = "[A-Z][A-Z0-9_]{1,62}"

_CODE: Final = re.compile(CODE_PATTERN)
_CATEGORIES: Final[Mapping[Category, failure_pb2.FailureCategory.ValueType]] = {
    "business": failure_pb2.FAILURE_CATEGORY_BUSINESS,
    "technical": failure_pb2.FAILURE_CATEGORY_TECHNICAL,
    "limit": failure_pb2.FAILURE_CATEGORY_LIMIT,
}


class Failed(StepgraphError):
    """The task fails, with a code that graphs can route on and retry policies can name.

    Args:
        code: A stable name such as "RATE_LIMITED".
        message: What went wrong and what to do, for people.
        retryable: Whether another try may help. None leaves it to the category: "technical" is retryable, the others not.
        retry_after: When it may be tried again, if you know better than the policy: "2s", or a timedelta.
        category: "business": the work itself said no; "technical": something broke; "limit": there was too much of something.
        details: More facts, by name.
        usage: What it cost.

    Raises:
        ValueError: The code is not such a name, or the time is none.
    """

    def __init__(  # noqa: PLR0913  # all but two are by name, and none is needed
        self,
        code: str,
        message: str,
        *,
        retryable: bool | None = None,
        retry_after: Span | None = None,
        category: Category = "business",
        details: Mapping[str, str] | None = None,
        usage: llm_pb2.Usage | None = None,
    ) -> None:
        if _CODE.fullmatch(code) is None:
            text = f"a code is a name such as RATE_LIMITED ({CODE_PATTERN}), not {code!r}"
            raise ValueError(text)
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retryable = retryable
        self.retry_after = None if retry_after is None else to_duration(retry_after)
        self.category: Category = category
        self.details = dict(details or {})
        self.usage = usage


class ToolError(StepgraphError):
    """A tool reports trouble that the model should know about: a result, not a failure, and not tried again."""


class BadArguments(ToolError):
    """The arguments of a tool call don't fit its schema. The model is told which one, and may call again."""


class TurnsNotHeld(StepgraphError):
    """A poll of a step program leaves out turns that this process does not hold. It is given back, and comes again with all of them."""


def failure_outcome(error: BaseException, source: str) -> pb.AttemptOutcome.Failed:
    """Return what is reported for an exception; `source` is who says so."""
    if isinstance(error, Failed):
        failure = failure_pb2.Failure(
            code=error.code,
            category=_CATEGORIES[error.category],
            retryable=error.retryable,
            message=cut(error.message),
            source=source,
            details=error.details,
        )
        return pb.AttemptOutcome.Failed(
            failure=failure, retry_after=_copy(error.retry_after), usage=error.usage
        )
    text = str(error)
    failure = failure_pb2.Failure(
        code=EXECUTOR_ERROR,
        category=failure_pb2.FAILURE_CATEGORY_TECHNICAL,
        message=cut(f"{type(error).__name__}: {text}" if text else type(error).__name__),
        source=source,
    )
    return pb.AttemptOutcome.Failed(failure=failure)


def cut(text: str) -> str:
    """Return a text that a failure's message may have: without lone surrogates, and cut with a mark."""
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_MESSAGE_BYTES:
        data = data[: MAX_MESSAGE_BYTES - 3] + "…".encode()
    return data.decode("utf-8", "ignore")


def _copy(duration: Duration | None) -> Duration | None:
    return None if duration is None else Duration(seconds=duration.seconds, nanos=duration.nanos)
