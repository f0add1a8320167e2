"""What the package `openai` raises, as failures of the task, or as the refusal that some servers say by an error.

Rules: everything that the package raises for a call goes through here, so that neither a type of it nor a key in one of its
messages goes any further.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import httpx2
import openai

from stepgraph_client.providers.failures import Answer

if TYPE_CHECKING:
    from stepgraph.v1.llm_pb2 import Usage
    from stepgraph_client.providers.failures import Failures
    from stepgraph_client.task_errors import Failed

_QUOTA_CODES: Final = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}
)
_TOO_LONG_CODES: Final = frozenset({"context_length_exceeded", "exceed_context_size_error"})
#: vLLM and others have no code for it.
_TOO_LONG_WORDS: Final = ("maximum context length", "context length exceeded")
_REFUSAL_CODES: Final = frozenset(
    {"content_filter", "content_policy_violation", "responsibleaipolicyviolation"}
)
_STATUS: Final = re.compile("[45][0-9][0-9]")
_NO_CONNECTION: Final = (httpx2.ConnectTimeout, httpx2.PoolTimeout)


class OpenAIFailures:
    """Makes the failures of one endpoint from what the package raises."""

    def __init__(self, failures: Failures, silence_s: float) -> None:
        """Begin; `silence_s` is how long the other side may send nothing."""
        self._failures: Final = failures
        self._silence_s: Final = silence_s

    def of(self, error: openai.OpenAIError, model: str) -> Failed:
        """Return the failure for what was raised before the reply began."""
        match error:
            case openai.APIStatusError():
                return self._failures.answered(_answer(error, model))
            case openai.APITimeoutError() if not isinstance(error.__cause__, _NO_CONNECTION):
                return self._failures.silent(self._silence_s)
            case openai.APIConnectionError():
                return self._failures.unreachable(_why(error))
            case openai.APIResponseValidationError():
                return self._failures.malformed(error.message)
            case _:
                # Of the client's own: it found no key, or got none from where keys come from.
                return self._failures.unreachable(str(error))

    def in_stream(self, error: openai.OpenAIError, model: str, usage: Usage | None) -> Failed:
        """Return the failure for what was raised after the reply had begun; `usage` is what is known of its cost."""
        match error:
            case openai.APITimeoutError():
                return self._failures.silent(self._silence_s, usage)
            case openai.APIConnectionError():
                return self._failures.broken(_why(error), usage)
            case openai.APIError():
                return self._reported(error, model, usage)
            case _:
                return self._failures.broken(str(error), usage)

    def _reported(self, error: openai.APIError, model: str, usage: Usage | None) -> Failed:
        """Return the failure for an error that is an event of the stream; some have a status as their code."""
        code = error.code or ""
        if _STATUS.fullmatch(code):
            said = Answer(status=int(code), message=error.message, code=code, model=model)
            return self._failures.answered(said, usage)
        name = code or error.type or ""
        said_by = f" ({name})" if name else ""
        return self._failures.broken(f"{error.message}{said_by}", usage)


def refusal_in(error: openai.APIStatusError) -> str | None:
    """Return what a content filter says that refused the request itself; None if it was none."""
    codes = {error.code, error.type, _inner_code(error.body)}
    return _message_of(error) if _names(codes) & _REFUSAL_CODES else None


def _answer(error: openai.APIStatusError, model: str) -> Answer:
    names = _names({error.code, error.type})
    message = _message_of(error)
    words = message.lower()
    return Answer(
        status=error.status_code,
        headers={name.lower(): value for name, value in error.response.headers.items()},
        message=message,
        code=error.code or error.type or "",
        model=model,
        is_quota=bool(names & _QUOTA_CODES),
        is_too_long=bool(names & _TOO_LONG_CODES) or any(each in words for each in _TOO_LONG_WORDS),
    )


def _message_of(error: openai.APIStatusError) -> str:
    """Return what the server says; the package's own message has the whole body in it."""
    match error.body:
        case {"message": str(message)}:
            return message
        case {"detail": str(message)}:
            return message
        case str(message):
            return message
        case _:
            return error.message


def _why(error: openai.APIConnectionError) -> str:
    """Return why there is no connection: what was raised first says most."""
    match error.__cause__:
        case httpx2.ConnectTimeout():
            return "it did not accept the connection in time"
        case httpx2.PoolTimeout():
            return "all connections are in use; allow more of them, or take fewer tasks at once"
        case None:
            return error.message
        case cause:
            return str(cause) or type(cause).__name__


def _names(codes: set[object]) -> set[str]:
    return {str(code).lower() for code in codes if code}


def _inner_code(body: object) -> object:
    """Return the code that Azure has one level further down."""
    match body:
        case {"innererror": {"code": code}}:
            return code
        case _:
            return None
