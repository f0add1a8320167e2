"""Logs: one event a record, for machines or for people.

Rules: a record has a constant message, an `action` (a stable name, see `names.py`) and fields, given with
`extra={"action": ..., ...}`. Payloads are never fields. Values are short: what is longer is cut, whatever it is.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = "stepgraph_server"
MAX_FIELD_CHARACTERS: Final = 500

# What every record has; the rest of its attributes are the fields of the event.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "action"}


def configure(level: str, form: str, stream: TextIO | None = None) -> None:
    """Send the server's events to a stream, stderr by default, in place of what was configured before.

    Args:
        level: The least important level: debug, info, warning or error.
        form: `json`, one object a line, or `human`.
        stream: Where to.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else HumanFormatter())
    logger = logging.getLogger(ROOT)
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    # The root logger belongs to whoever embeds the server; writing there too would write everything twice.
    logger.propagate = False


class JsonFormatter(logging.Formatter):
    """One JSON object a line. Fields stand beside time, level, logger, action and message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        entry: dict[str, object] = {
            "time": _time(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "action": getattr(record, "action", ""),
            "message": _cut(record.getMessage()),
            **dict(_fields(record)),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        line = json.dumps(entry, ensure_ascii=False)
        # Characters that a terminal obeys, or that no encoding has, are rare; then all that is not ASCII is escaped.
        return line if line.isprintable() else json.dumps(entry)


class HumanFormatter(logging.Formatter):
    """A line for people: time, level, message, fields; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, or lines."""
        fields = " ".join(f"{name}={value}" for name, value in _fields(record))
        line = _harmless(
            f"{_time(record):%H:%M:%S} {record.levelname.lower():<7} {_cut(record.getMessage())}"
            + (f"  {fields}" if fields else "")
        )
        if not record.exc_info:
            return line
        traceback = self.formatException(record.exc_info).split("\n")
        return "\n".join([line, *map(_harmless, traceback)])


def _harmless(text: str) -> str:
    """Return a line in which nothing moves the cursor, colours the rest, or turns the direction: callers choose some of it."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in text
    )


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, tz=UTC)


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    for name, value in vars(record).items():
        if name in _STANDARD:
            continue
        plain = value is None or isinstance(value, (bool, int, float))
        yield name, value if plain else _cut(str(value))


def _cut(text: str) -> str:
    if len(text) <= MAX_FIELD_CHARACTERS:
        return text
    return text[: MAX_FIELD_CHARACTERS - 1] + "…"
