"""Writing a group of appends in one transaction."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from stepgraph_server.storage.sqlite import group as group_module
from stepgraph_server.storage.sqlite.group import GroupWriter
from tests.contracts.storing import append, creation, errors, key, request

WHERE = Path("store.db")


class Faulty:
    """A connection that fails at chosen statements, before or after they were carried out."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.fail_before: dict[str, Exception] = {}
        self.fail_after: dict[str, Exception] = {}
        self.seen: list[str] = []

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, text: str, *values: object) -> sqlite3.Cursor:
        return self._do(self._connection.execute, text, *values)

    def executemany(self, text: str, *values: object) -> sqlite3.Cursor:
        return self._do(self._connection.executemany, text, *values)

    def _do(self, call: object, text: str, *values: object) -> sqlite3.Cursor:
        word = text.split(maxsplit=1)[0]
        self.seen.append(word)
        if word in self.fail_before:
            raise self.fail_before.pop(word)
        cursor = call(text, *values)
        if word in self.fail_after:
            raise self.fail_after.pop(word)
        return cursor


def error(code: int) -> sqlite3.OperationalError:
    made = sqlite3.OperationalError("broken")
    made.sqlite_errorcode = code
    return made


@pytest.fixture
def faulty(connection: sqlite3.Connection) -> Faulty:
    return Faulty(connection)


@pytest.fixture
def writer(faulty: Faulty) -> GroupWriter:
    return GroupWriter(faulty, WHERE)


def sequences(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    return connection.execute(
        "SELECT run_key, first_sequence FROM journal ORDER BY position"
    ).fetchall()


def test_a_group_is_one_transaction(writer: GroupWriter, faulty: Faulty) -> None:
    """And a run that has several appends in it is updated once."""
    writer.write([append(1), append(1, key=key("r2"))])
    faulty.seen.clear()
    results = writer.write([append(2), append(3), append(2, key=key("r2"))])
    assert errors(results) == [None] * 3
    assert [result.position for result in results] == [3, 4, 5]
    assert writer.head_position == 5
    assert faulty.seen == ["BEGIN", "INSERT", "UPDATE", "COMMIT"]


@pytest.mark.parametrize("word", ["BEGIN", "INSERT", "COMMIT"])
def test_when_nothing_can_be_written_the_whole_group_hears_it(
    writer: GroupWriter, faulty: Faulty, connection: sqlite3.Connection, word: str
) -> None:
    """Nothing of it is stored, and it may be tried again once it was heard."""
    writer.write([append(1)])
    faulty.fail_before[word] = error(sqlite3.SQLITE_FULL)
    group = [append(2), append(3), append(1, key=key("r2"))]
    results = writer.write(group)
    assert errors(results) == ["JournalUnavailable"] * 3
    assert "the disk is full" in str(results[0].error)
    assert not connection.in_transaction
    assert sequences(connection) == [(1, 1)]
    # Submitted before the failure was heard of.
    assert errors(writer.write([append(4)])) == ["AppendSkipped"]
    writer.forgive(results[0])
    writer.forgive(results[2])
    assert errors(writer.write(group)) == [None] * 3


def test_why_nothing_can_be_written_is_in_the_log_once(
    writer: GroupWriter, faulty: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    """With SQLite's words and the path, and again only after something could be written."""
    for times in (3, 2):
        assert errors(writer.write([append(1, key=key(f"a{times}"))])) == [None]
        for number in range(times):
            faulty.fail_before["COMMIT"] = error(sqlite3.SQLITE_FULL)
            writer.write([append(1, key=key(f"r{number}"))])
    said = [record for record in caplog.records if record.action == "journal.failed"]
    assert len(said) == 2
    assert f"can't use {WHERE}: the disk is full (broken)" in said[0].cause


def test_a_commit_whose_end_is_not_known_is_read_back(writer: GroupWriter, faulty: Faulty) -> None:
    """It is in the log, although the disk reported an error: saying otherwise would be wrong for ever."""
    faulty.fail_after["COMMIT"] = error(sqlite3.SQLITE_IOERR)
    assert errors(writer.write([append(1)])) == [None]
    assert errors(writer.write([append(2)])) == [None]


def test_a_commit_that_ended_without_storing_is_a_failure(
    writer: GroupWriter, faulty: Faulty, connection: sqlite3.Connection
) -> None:
    """SQLite may end a transaction by itself."""
    connection.execute("CREATE TABLE undo (x)")

    class RolledBack(sqlite3.OperationalError):
        sqlite_errorcode = sqlite3.SQLITE_IOERR

    original = faulty.execute

    def execute(text: str, *values: object) -> sqlite3.Cursor:
        if text == "COMMIT":
            original("ROLLBACK")
            raise RolledBack
        return original(text, *values)

    faulty.execute = execute
    assert errors(writer.write([append(1)])) == ["JournalUnavailable"]
    assert sequences(connection) == []


def test_a_rollback_that_fails_is_tried_again(
    writer: GroupWriter, faulty: Faulty, connection: sqlite3.Connection
) -> None:
    """The thread lives on, and the next group finds the way back."""
    faulty.fail_before["INSERT"] = error(sqlite3.SQLITE_IOERR)
    faulty.fail_before["ROLLBACK"] = error(sqlite3.SQLITE_IOERR)
    (first,) = writer.write([append(1)])
    assert connection.in_transaction
    (second,) = writer.write([append(1, key=key("r2"))])
    assert errors([first, second]) == ["JournalUnavailable"] * 2
    writer.forgive(first)
    assert errors(writer.write([append(1)])) == [None]


@pytest.mark.parametrize(
    "bad",
    [
        append(1, key=key("bad"), batch="text"),
        append(1, key=key("bad"), creation=creation("bad", labels={"a": b"x"})),
        append(1, key=key("bad"), creation=creation("bad", create_time=2**70)),
        append(1, key=key("bad"), creation=creation("bad", graph_name="\ud800")),
        append(1, key=key("bad"), progress=None),
    ],
    ids=["type", "label", "number", "surrogate", "nothing"],
)
def test_a_row_that_can_not_be_stored_does_not_fail_its_group(
    writer: GroupWriter, connection: sqlite3.Connection, bad: object
) -> None:
    """The group is taken apart, and only the bad one fails."""
    group = [append(1), bad, append(2, key=key("bad")), append(2), append(1, key=key("r3"))]
    results = writer.write(group)
    assert errors(results) == [None, "AppendInvalid", "AppendSkipped", None, None]
    assert len(sequences(connection)) == 3


def test_a_failure_is_forgiven_when_the_caller_heard_of_it(writer: GroupWriter) -> None:
    """Of this one: having heard of an earlier failure says nothing of a later one."""
    writer.write([append(1, 3)])
    (first,) = writer.write([append(9)])
    assert errors(writer.write([append(4)])) == ["AppendSkipped"]
    writer.forgive(first)
    (second,) = writer.write([append(9)])
    writer.forgive(first)
    assert errors(writer.write([append(4)])) == ["AppendSkipped"]
    writer.forgive(second)
    assert errors(writer.write([append(4)])) == [None]


def test_what_is_known_of_runs_is_bounded(
    writer: GroupWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that were not written for longest the row is read again."""
    monkeypatch.setattr(group_module, "KNOWN_RUNS", 3)
    for number in range(1, 4):
        for run in range(6):
            assert errors(writer.write([append(number, key=key(f"r{run}"))])) == [None]
            assert len(writer._known) <= 3


def test_it_goes_on_where_the_file_ends(
    writer: GroupWriter, connection: sqlite3.Connection
) -> None:
    """Positions, keys of runs, ends of runs and request ids come from the file."""
    writer.write([append(1, request=request()), append(2)])
    again = GroupWriter(connection, WHERE)
    assert again.head_position == 2
    results = again.write([append(3), append(1, key=key("r2")), append(4, request=request())])
    assert errors(results) == [None, None, "RequestIdReused"]
    assert [result.position for result in results] == [3, 4, 0]
    assert sequences(connection) == [(1, 1), (1, 2), (1, 3), (2, 1)]


def test_a_group_that_is_refused_as_a_whole_is_not_read_back(
    writer: GroupWriter, faulty: Faulty
) -> None:
    """There is nothing that could be stored."""
    results = writer.write([append(5), append(5, key=key("r2"))])
    assert errors(results) == ["SequenceConflict"] * 2
    assert writer.head_position == 0
