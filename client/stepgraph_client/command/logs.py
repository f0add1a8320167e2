"""What a command that runs for long says on stderr: lines for people, or one JSON object a line.

Rules: a record is an event with a stable `action` and fields, as in the server's log, and its JSON has the same names. What a value is
too long for is cut; characters that a terminal obeys are escaped.
"""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

ROOT: Final = "stepgraph_client"
LEVELS: Final = ("debug", "info", "warning", "error")
MAX_FIELD_CHARACTERS: Final = 500

# What every record has; the rest of its attributes are the fields of the event.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "action"}


@contextmanager
def shown(stream: TextIO, *, level: str, as_json: bool) -> Iterator[None]:
    """Write what this package logs to a stream meanwhile."""
    logger = logging.getLogger(ROOT)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if as_json else Lines())
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    # Whoever has configured the root logger would write everything a second time.
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, action and message, with the fields beside them."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        entry: dict[str, object] = {
            "time": _time(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "action": getattr(record, "action", ""),
            "message": _cut(record.getMessage()),
        }
        for name, value in vars(record).items():
            if name not in _STANDARD:
                is_plain = value is None or isinstance(value, (bool, int, float))
                entry[name] = value if is_plain else _cut(str(value))
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        line = json.dumps(entry, ensure_ascii=False)
        return line if line.isprintable() else json.dumps(entry)


class Lines(logging.Formatter):
    """A line for people. The message needs no fields to be understood; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, or lines."""
        mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        line = _harmless(f"{_time(record):%H:%M:%S} {mark}{record.getMessage()}")
        if not record.exc_info:
            return line
        traceback = self.formatException(record.exc_info).split("\n")
        return "\n".join([line, *map(_harmless, traceback)])


def _harmless(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, tz=UTC)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_FIELD_CHARACTERS else text[: MAX_FIELD_CHARACTERS - 1] + "…"
