"""What a command that runs for long says on stderr."""

from __future__ import annotations

import io
import json
import logging

import pytest

from stepgraph_client.command import logs

_log = logging.getLogger("stepgraph_client.test")


def said(say, *, level="info", as_json=False):
    stream = io.StringIO()
    with logs.shown(stream, level=level, as_json=as_json):
        say()
    return stream.getvalue()


def test_people_read_a_line():
    """For people a record is its time and its message; what is more than news is marked."""
    line = said(lambda: _log.info("hosts %s", "x", extra={"action": "a", "field": 1}))
    assert line.endswith(" hosts x\n")
    assert said(lambda: _log.warning("careful")).endswith(" warning: careful\n")


def test_programs_read_json():
    """With JSON each record is one object with its fields."""
    line = said(lambda: _log.warning("careful", extra={"action": "a.b", "n": 1}), as_json=True)
    entry = json.loads(line)
    assert entry.pop("time").endswith("+00:00")
    assert entry == {
        "level": "warning",
        "logger": "stepgraph_client.test",
        "action": "a.b",
        "message": "careful",
        "n": 1,
    }


@pytest.mark.parametrize("as_json", [True, False])
def test_a_traceback_is_shown(as_json):
    """A fault comes with its traceback."""

    def fail():
        try:
            int("x\x1b[31m")
        except ValueError:
            _log.exception("it failed")

    text = said(fail, as_json=as_json)
    assert "ValueError: invalid literal" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("as_json", [True, False])
def test_nothing_moves_the_cursor(as_json):
    """Characters that a terminal obeys are escaped, and one record stays one line."""
    text = said(lambda: _log.info("a\x1b[2J\nb", extra={"action": "a"}), as_json=as_json)
    assert "\x1b" not in text
    assert text.count("\n") == 1


def test_what_is_too_long_is_cut():
    """A field is cut at its limit."""
    line = said(lambda: _log.info("x", extra={"field": "y" * 10_000}), as_json=True)
    assert len(json.loads(line)["field"]) == logs.MAX_FIELD_CHARACTERS


def test_the_level_is_kept():
    """What is less important than the level is left out."""
    assert said(lambda: _log.info("x"), level="warning") == ""


def test_logging_is_as_it_was_afterwards():
    """Once it is over, everything is as it was before, and nothing was written twice meanwhile."""
    logger = logging.getLogger(logs.ROOT)
    before = (logger.level, logger.propagate, list(logger.handlers))
    said(lambda: _log.info("x"))
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
