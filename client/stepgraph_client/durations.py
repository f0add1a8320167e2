"""Lengths of time as people write them: "30s", "1.5h", "1h30m", "250ms".

Rules: exact to the nanosecond, because a graph that is read and written again must have the same digest.
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

from google.protobuf.duration_pb2 import Duration

#: What a duration may be given as: text such as "30s", or a timedelta.
Span = timedelta | str

#: google.protobuf.Duration ends here, at about 10,000 years.
MAX_SECONDS = 315_576_000_000

_NANOS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ns|us|ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")


class DurationTextError(ValueError):
    """A text is not a duration. Expected; the message says what one looks like."""

    def __init__(self, text: str) -> None:
        super().__init__(f'{text!r} is not a duration; write one such as "30s", "1.5h" or "1h30m"')
        self.text = text


def to_duration(span: Span) -> Duration:
    """Return a span as a protobuf Duration.

    Raises:
        DurationTextError: the text is not a duration, or the span is negative or too long.
    """
    if isinstance(span, timedelta):
        nanos = (span // timedelta(microseconds=1)) * 1000
        if nanos < 0:
            raise DurationTextError(str(span))
    else:
        nanos = _nanos(span.strip())
    seconds, rest = divmod(nanos, 10**9)
    if seconds > MAX_SECONDS:
        raise DurationTextError(str(span))
    return Duration(seconds=seconds, nanos=rest)


def duration_text(duration: Duration) -> str:
    """Return a duration in the largest unit that it is a whole number of: "90s", "2h", "0.25s"."""
    nanos = duration.seconds * 10**9 + duration.nanos
    if nanos < 10**9 or nanos % 10**9:
        return f"{Decimal(nanos) / 10**9:f}s"
    for unit in ("d", "h", "m"):
        if nanos % _NANOS[unit] == 0:
            return f"{nanos // _NANOS[unit]}{unit}"
    return f"{nanos // 10**9}s"


def _nanos(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise DurationTextError(text)
    total = sum(Decimal(amount) * _NANOS[unit] for amount, unit in _PART.findall(text))
    if total != int(total):
        raise DurationTextError(text)
    return int(total)
