"""A record is an event: it has an action and fields, and fits on a line."""

from __future__ import annotations

import io
import json
import logging

import pytest

from stepgraph_server.telemetry import logs


@pytest.fixture(autouse=True)
def keep_logging_as_it_was():
    logger = logging.getLogger(logs.ROOT)
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.level, logger.propagate = before


def written(form, level="info"):
    stream = io.StringIO()
    logs.configure(level, form, stream)
    return stream, logging.getLogger("stepgraph_server.somewhere")


def test_json_has_the_fields_beside_time_level_action_and_message():
    stream, logger = written("json")

    logger.info("Run is loaded", extra={"action": "run.loaded", "run_id": "r1", "events": 3})

    entry = json.loads(stream.getvalue())
    time = entry.pop("time")
    assert time.endswith("+00:00")
    assert entry == {
        "level": "info",
        "logger": "stepgraph_server.somewhere",
        "action": "run.loaded",
        "message": "Run is loaded",
        "run_id": "r1",
        "events": 3,
    }


def test_json_holds_the_traceback_in_one_line():
    stream, logger = written("json")

    try:
        {}["x"]
    except KeyError:
        logger.exception("Failed", extra={"action": "call.fault"})

    assert stream.getvalue().count("\n") == 1
    assert "KeyError: 'x'" in json.loads(stream.getvalue())["exception"]


def test_a_line_for_people_has_message_and_fields():
    stream, logger = written("human")

    logger.warning("Nothing can be written", extra={"action": "readiness.lost", "cause": "full"})

    assert stream.getvalue()[9:] == "warning Nothing can be written  cause=full\n"


def test_a_line_for_people_stays_one_line_and_its_traceback_follows():
    stream, logger = written("human")

    try:
        int("x")
    except ValueError:
        logger.exception("Failed\nbadly", extra={"action": "call.fault", "method": "a\nb"})

    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("Failed\\nbadly  method=a\\nb")
    assert rest[-1].startswith("ValueError")


@pytest.mark.parametrize("form", ["human", "json"])
@pytest.mark.parametrize(
    "character", ["\x1b", "\r", "\x00", "\x7f", "\x9b", "\u202e", "\u2028", "\ud800"]
)
def test_nothing_that_a_terminal_obeys_is_written_as_it_is(form, character):
    """Callers choose ids and reasons; their log must not be theirs to paint."""
    stream, logger = written(form)

    error = ValueError(f"bad {character}")
    logger.error(
        "é %s", character, extra={"action": "x.y", "field": f"ü {character}"}, exc_info=error
    )

    text = stream.getvalue()
    assert character not in text
    assert all(line.isprintable() for line in text.split("\n"))
    if form == "json":
        assert json.loads(text)["field"] == f"ü {character}"
    else:
        assert "é" in text


@pytest.mark.parametrize("form", ["human", "json"])
def test_what_is_long_is_cut(form):
    stream, logger = written(form)

    logger.info("Long", extra={"action": "x.y", "text": "a" * 10_000})

    assert len(stream.getvalue()) < 800


def test_what_is_less_important_than_the_level_is_left_out():
    stream, logger = written("human", "warning")

    logger.info("Not wanted", extra={"action": "x.y"})

    assert stream.getvalue() == ""


def test_configuring_again_replaces_what_was_configured():
    first, logger = written("human")
    second, _ = written("human")

    logger.info("Once", extra={"action": "x.y"})

    assert first.getvalue() == ""
    assert second.getvalue().count("Once") == 1
