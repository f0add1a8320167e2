"""Who reads an executor's log sees what is wrong with the connection, and is not drowned in it."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import grpc
import pytest

from stepgraph_client._notices import Notices, last_words, shown_without_logging
from stepgraph_client._stream import StreamEnd
from stepgraph_client.errors import NotPermitted, Status

AWAY = StreamEnd(
    status=Status(code=grpc.StatusCode.UNAVAILABLE, message="connection\n refused.", metadata={})
)


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.DEBUG, "stepgraph_client")
    return lambda: [(each.levelname, each.getMessage()) for each in caplog.records]


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def welcomed():
    return SimpleNamespace(welcome=SimpleNamespace(session_id="s1"), lost=(), dropped=0)


def test_the_first_failure_is_a_warning_and_then_one_a_minute(said):
    """What lasts is told now and then; every try is there for who looks closer."""
    clock = Clock()
    notices = Notices("host:1", "w", clock)
    for second in range(0, 130, 10):
        clock.now = float(second)
        notices.ended(AWAY, 0.5)
    levels = [level for level, _ in said()]
    assert [at * 10 for at, level in enumerate(levels) if level == "WARNING"] == [0, 60, 120]
    assert set(levels) == {"WARNING", "DEBUG"}
    assert said()[0][1] == (
        "can't reach the stepgraph server at host:1: connection refused; trying again in 0.5 s, and for as long as it takes"
    )


def test_a_connection_that_came_back_is_told_and_its_next_loss_at_once(said):
    """Connecting is one line; a server that was there was lost, and is not merely out of reach."""
    notices = Notices("host:1", "w", Clock())
    notices.ended(AWAY, 0.5)
    notices.connected(welcomed())
    notices.ended(StreamEnd(status=None, was_silent=True), 0.1)
    assert said()[1:] == [
        ("INFO", "connected to host:1 as w"),
        (
            "WARNING",
            "lost the stepgraph server at host:1: it was silent for too long; trying again in 0.1 s, and for as long as it takes",
        ),
    ]


def test_an_end_that_was_wished_for_is_no_warning(said):
    """Stopping is quiet."""
    Notices("host:1", "w", Clock()).ended(StreamEnd(status=None), None)
    assert said() == [("INFO", "the connection has ended")]


def test_a_refusal_without_a_remedy_of_its_own_still_says_something():
    """Every end names the reason and something to do."""
    status = Status(code=grpc.StatusCode.PERMISSION_DENIED, message="no.", metadata={})
    assert last_words(NotPermitted(status), "host:1", "w") == (
        "the executor has ended: no. What to do: mend that, and start it again."
    )


class TestWithoutLogging:
    def test_it_is_written_once_and_the_package_is_left_as_it_was(self, capsys, monkeypatch):
        """Nothing stays configured."""
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        log = logging.getLogger("stepgraph_client.executor")
        with shown_without_logging():
            log.info("hello")
            log.debug("not this")
        log.info("nor this")
        said = capsys.readouterr().err
        assert said.endswith("stepgraph: hello\n")
        assert said.count("\n") == 1
        assert logging.getLogger("stepgraph_client").level == logging.NOTSET

    def test_it_holds_its_tongue_once_the_program_has_configured_logging(self, capsys, monkeypatch):
        """A later configuration gets each line once."""
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        with shown_without_logging():
            monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
            logging.getLogger("stepgraph_client.executor").warning("hello")
        assert capsys.readouterr().err == ""

    def test_a_program_with_handlers_is_left_alone(self, monkeypatch):
        """Who configures logging decides what is shown."""
        monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
        with shown_without_logging():
            assert logging.getLogger("stepgraph_client").handlers == []
