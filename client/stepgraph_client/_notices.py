"""What an executor says of its connection in the log, in words that need no fields to be understood.

Rules: who reads a log sees at once that something is wrong, and is not drowned in it: the first failure is a warning, and while
it lasts there is another one now and then. Fields are for programs, and their `action` is stable. A library configures no logging;
`shown_without_logging` is for programs that have nothing but an executor, and writes only where nobody else would.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from stepgraph_client.wording import shortened, span_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from stepgraph.v1 import executor_service_pb2 as pb
    from stepgraph_client._session_events import Welcomed
    from stepgraph_client._stream import StreamEnd
    from stepgraph_client.errors import Refused

_log = logging.getLogger("stepgraph_client.executor")

#: How often a trouble that lasts is told again.
REPEAT_S: Final = 60.0
MAX_REASON_CHARACTERS: Final = 300

#: What to do about an end that connecting again can't mend.
_REMEDIES: Final = {
    "SESSION_SUPERSEDED": "another process runs with the executor id {executor_id!r}. Give each process an executor_id of its "
    "own, or leave it out",
    "HELLO_INVALID": "correct how the executor {executor_id!r} was made, and start it again",
    "UNAUTHENTICATED": "check the credentials of the executor {executor_id!r}",
    "FORBIDDEN": "ask whoever runs the server at {server} to let the executor {executor_id!r} in",
}


class Notices:
    """Says how the connection of one executor is."""

    def __init__(self, server: str, executor_id: str, now: Callable[[], float]) -> None:
        """Begin; `now` is a clock of seconds."""
        self._server: Final = server
        self._executor_id: Final = executor_id
        self._now: Final = now
        self._was_connected = False
        self._told_at: float | None = None

    def connected(self, event: Welcomed) -> None:
        """Say that the server has welcomed the executor."""
        self._was_connected = True
        self._told_at = None
        self.say(
            f"connected to {self._server} as {self._executor_id}",
            "session.opened",
            session_id=event.welcome.session_id,
            lost=len(event.lost),
            dropped=event.dropped,
        )

    def ended(self, end: StreamEnd, delay_s: float | None) -> None:
        """Say that a stream has ended; `delay_s` is when the next is tried, None if none will be."""
        status = end.status
        fields: dict[str, object] = {
            "code": "SILENT" if end.was_silent else status.code.name if status else "OK",
            "reason": status.reason if status else "",
            "detail": status.message if status else "",
            "again_in_s": None if delay_s is None else round(delay_s, 3),
        }
        if delay_s is None:
            self.say("the connection has ended", "session.ended", **fields)
            return
        verb = "lost" if self._was_connected else "can't connect to"
        if not self._was_connected and status is not None and status.unreached:
            verb = "can't reach"
        text = f"{verb} the stepgraph server at {self._server}: {_reason(end)}"
        again = f"{text}; trying again in {span_text(delay_s)}, and for as long as it takes"
        self._write(self._level(), again, "session.ended", fields)

    def _level(self) -> int:
        """Return how loud the next trouble is."""
        now = self._now()
        if self._told_at is not None and now - self._told_at < REPEAT_S:
            return logging.DEBUG
        self._told_at = now
        self._was_connected = False
        return logging.WARNING

    def rejected(self, reject: pb.Reject, failed: int, dropped: int) -> None:
        """Say that the server has not taken something."""
        what = reject.attempt.task_id or reject.field or "a frame"
        text = f"the server has rejected {what}: {reject.reason}: {reject.message}"
        fields: dict[str, object] = {
            "reason": reject.reason,
            "detail": reject.message,
            "field": reject.field,
            "frame_ordinal": reject.frame_ordinal,
            "task_id": reject.attempt.task_id,
            "failed": failed,
            "dropped": dropped,
        }
        self._write(logging.WARNING, text, "session.rejected", fields)

    def say(self, text: str, action: str, **fields: object) -> None:
        """Say something else."""
        self._write(logging.INFO, text, action, fields)

    def _write(self, level: int, text: str, action: str, fields: Mapping[str, object]) -> None:
        _log.log(level, text, extra={"action": action, "executor_id": self._executor_id, **fields})


def _reason(end: StreamEnd) -> str:
    if end.was_silent:
        return "it was silent for too long"
    if end.status is None:
        return "it has ended the connection"
    reason = f"{end.status.reason}: " if end.status.reason else ""
    return reason + shortened(
        end.status.message or end.status.code.name, MAX_REASON_CHARACTERS
    ).rstrip(".")


def last_words(refused: Refused, server: str, executor_id: str) -> str:
    """Return for people why an executor has ended for good, and what to do."""
    remedy = _REMEDIES.get(refused.reason, "mend that, and start it again")
    return (
        f"the executor has ended: {str(refused).rstrip('.')}. "
        f"What to do: {remedy.format(executor_id=executor_id, server=server)}."
    )


@contextmanager
def shown_without_logging() -> Iterator[None]:
    """Write what this package logs to stderr meanwhile, if the program has configured no logging."""
    package = logging.getLogger("stepgraph_client")
    if logging.getLogger().handlers or package.handlers:
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s stepgraph: %(message)s"))
    # Logging may be configured later, by what a function imports: then it is told once, there.
    handler.addFilter(lambda _: not logging.getLogger().handlers)
    level = package.level
    package.addHandler(handler)
    if level == logging.NOTSET:
        package.setLevel(logging.INFO)
    try:
        yield
    finally:
        package.removeHandler(handler)
        package.setLevel(level)
