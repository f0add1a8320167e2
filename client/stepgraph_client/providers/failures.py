"""What goes wrong at a provider, as failures of the task.

Rules: one table for all providers says what an HTTP status means. A message says who answered what, and what to do about it.
Whatever a provider or a library wrote passes through `_safe`: keys are taken out, and it is cut.

| code | when | another try may help |
|---|---|---|
| `RATE_LIMITED` | 429; `Retry-After` becomes `retry_after` | yes |
| `PROVIDER_UNAVAILABLE` | 409, 425, and 5xx but 501 | yes |
| `PROVIDER_TIMEOUT` | 408, 504, 524, or silence for too long | yes |
| `PROVIDER_UNREACHABLE` | no connection, or it broke before the reply began | yes |
| `STREAM_BROKEN` | the reply began and did not end | yes |
| `REPLY_MALFORMED` | the reply is not what the API promises | yes |
| `QUOTA_SPENT` | 402, or a 429 that says that the account has nothing left | no |
| `PROVIDER_UNAUTHENTICATED` | 401 | no |
| `PROVIDER_FORBIDDEN` | 403 | no |
| `MODEL_NOT_FOUND` | 404: no such model, or a wrong base URL | no |
| `REQUEST_TOO_LARGE` | 413, or the context is too long for the model | no |
| `REQUEST_REJECTED` | any other 4xx, and 501: the request is not one that it takes | no |
| `REPLY_TOO_LARGE` | the reply is above what is kept | no |
| `OPTIONS_INVALID` | `provider_options` can't be used | no |
| `CONTENT_UNSUPPORTED` | a block of a message has no form at this provider, or its content is gone | no |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from stepgraph_client.task_errors import Category, Failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stepgraph.v1.llm_pb2 import Usage

#: What is quoted of a provider's own message.
MAX_QUOTED_CHARACTERS: Final = 600
#: A wait above this is no plan: the policy's own delay is taken instead.
MAX_RETRY_AFTER: Final = timedelta(hours=24)
#: A key that is shorter would take ordinary words out of messages.
_MIN_HIDDEN_CHARACTERS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP answer that is no reply.

    Attributes:
        status: Its status.
        headers: Its headers, found by lower-case names.
        message: What the provider says, in its words.
        code: The provider's own name for it. Empty if it gave none.
        model: The model that was asked, as the provider names it. Empty if none was.
        is_quota: The provider says that the account has nothing left, so waiting is of no use.
        is_too_long: The provider says that the request is too long for the model.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    code: str = ""
    model: str = ""
    is_quota: bool = False
    is_too_long: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meaning:
    code: str
    category: Category
    retryable: bool
    remedy: str


def _again(code: str) -> _Meaning:
    remedy = "Another try may help"
    return _Meaning(code=code, category="technical", retryable=True, remedy=remedy)


def _final(code: str, category: Category, remedy: str) -> _Meaning:
    return _Meaning(code=code, category=category, retryable=False, remedy=remedy)


_REJECTED: Final = _final(
    "REQUEST_REJECTED", "business", "Correct what it says; another try would end the same"
)
_QUOTA: Final = _final("QUOTA_SPENT", "limit", "Add credit to the account, or use another key")
_TOO_LARGE: Final = _final(
    "REQUEST_TOO_LARGE",
    "limit",
    "Send less: set `context` on the node, or use a model with a longer context",
)
_TIMEOUT: Final = _again("PROVIDER_TIMEOUT")
_UNAVAILABLE: Final = _again("PROVIDER_UNAVAILABLE")
_MEANINGS: Final[Mapping[int, _Meaning]] = {
    401: _final("PROVIDER_UNAUTHENTICATED", "technical", "Check the key in {key_name}"),
    402: _QUOTA,
    403: _final(
        "PROVIDER_FORBIDDEN",
        "technical",
        "Use a key that may do this, or let the account of the key in {key_name} do it",
    ),
    404: _final(
        "MODEL_NOT_FOUND", "technical", "Check the model's name and the base URL {address}"
    ),
    408: _TIMEOUT,
    409: _UNAVAILABLE,
    413: _TOO_LARGE,
    425: _UNAVAILABLE,
    429: _again("RATE_LIMITED"),
    501: _REJECTED,
    504: _TIMEOUT,
    524: _TIMEOUT,
}
#: From here on a status is the provider's fault.
_FIRST_FAULT: Final = 500


class Failures:
    """Makes the failures of one endpoint."""

    def __init__(self, *, address: str, key_name: str, secrets: Iterable[str]) -> None:
        """Begin; no message will have one of `secrets` in it. They are read anew for each message: keys change."""
        self._address: Final = address
        self._key_name: Final = key_name
        self._secrets: Final = secrets

    def answered(self, answer: Answer, usage: Usage | None = None) -> Failed:
        """Return the failure for an HTTP answer that is no reply."""
        meaning = _meaning_of(answer)
        remedy = meaning.remedy.format(key_name=self._key_name, address=self._address)
        said = self._safe(answer.message).rstrip(". ")
        asked = f", asked for {self._safe(answer.model)}," if answer.model else ""
        head = f"{self._address}{asked} answered {answer.status}"
        return Failed(
            meaning.code,
            f"{head}: {said}. {remedy}." if said else f"{head}. {remedy}.",
            category=meaning.category,
            retryable=_wish(answer.headers, otherwise=meaning.retryable),
            retry_after=retry_after(answer.headers),
            details=self._details(answer),
            usage=usage,
        )

    def unreachable(self, why: str) -> Failed:
        """Return the failure for a connection that there is none of, or that broke before the reply began."""
        message = f"can't reach {self._address}: {self._safe(why)}. See whether it runs, and whether this process may connect to it."
        return Failed("PROVIDER_UNREACHABLE", message, category="technical")

    def silent(self, silence_s: float, usage: Usage | None = None) -> Failed:
        """Return the failure for silence that took too long."""
        message = f"{self._address} sent nothing for {silence_s:g} s. Try again, or allow a longer silence."
        return Failed("PROVIDER_TIMEOUT", message, category="technical", usage=usage)

    def broken(self, why: str, usage: Usage | None = None) -> Failed:
        """Return the failure for a reply that began and did not end; `usage` is what is known of its cost."""
        message = f"the reply of {self._address} broke off: {self._safe(why)}."
        return Failed("STREAM_BROKEN", message, category="technical", usage=usage)

    def malformed(self, why: str, usage: Usage | None = None) -> Failed:
        """Return the failure for a reply that is not what the API promises."""
        message = (
            f"{self._address} sent a reply that can't be read: {self._safe(why)}. "
            "If it does so each time, it does not speak this API."
        )
        return Failed("REPLY_MALFORMED", message, category="technical", usage=usage)

    def hidden(self, text: str) -> str:
        """Return a text without the secrets."""
        secrets = {each for each in self._secrets if len(each) >= _MIN_HIDDEN_CHARACTERS}
        # The longest first: of two of which one begins with the other, no rest may stay.
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, "[key]")
        return text

    def _safe(self, text: str) -> str:
        """Return what somebody else wrote as a part of a message: one line, without secrets, cut."""
        line = " ".join(self.hidden(text).split())
        if len(line) <= MAX_QUOTED_CHARACTERS:
            return line
        return line[: MAX_QUOTED_CHARACTERS - 1] + "…"

    def _details(self, answer: Answer) -> dict[str, str]:
        request_id = answer.headers.get("x-request-id") or answer.headers.get("request-id")
        details = {
            "status": str(answer.status),
            "provider_code": self._safe(answer.code),
            "request_id": self._safe(request_id or ""),
            "model": self._safe(answer.model),
        }
        return {name: text for name, text in details.items() if text}


def _meaning_of(answer: Answer) -> _Meaning:
    if answer.is_quota:
        return _QUOTA
    if answer.is_too_long:
        return _TOO_LARGE
    known = _MEANINGS.get(answer.status)
    if known is not None:
        return known
    return _UNAVAILABLE if answer.status >= _FIRST_FAULT else _REJECTED


def _wish(headers: Mapping[str, str], *, otherwise: bool) -> bool:
    """Return whether another try may help: providers that know better than their status say so."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", ""), otherwise)


def retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """Return how long the provider asks to wait: in milliseconds, in seconds, or until a date. None if it does not say.

    A date counts from the answer's own `Date`, so that a clock that is wrong on either side changes nothing.
    """
    wait = (
        _length(headers.get("retry-after-ms"), milliseconds=1)
        or _length(headers.get("retry-after"), milliseconds=1000)
        or _until(headers.get("retry-after"), headers.get("date"))
    )
    return wait if wait is not None and timedelta() < wait <= MAX_RETRY_AFTER else None


def _length(text: str | None, *, milliseconds: int) -> timedelta | None:
    try:
        return timedelta(milliseconds=float(text or "") * milliseconds)
    except (ValueError, OverflowError):
        return None  # no number: a date, or nothing


def _until(then: str | None, now: str | None) -> timedelta | None:
    try:
        return parsedate_to_datetime(then or "") - parsedate_to_datetime(now or "")
    except (ValueError, TypeError):
        return None  # no date, or one without a zone beside one with it
