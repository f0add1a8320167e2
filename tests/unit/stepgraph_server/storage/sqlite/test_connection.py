"""How connections are opened, and what an operator is told."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from stepgraph_server.storage.errors import JournalUnavailable, StoreUnusable
from stepgraph_server.storage.sqlite import connection as connection_module
from stepgraph_server.storage.sqlite.connection import (
    check_place,
    explain,
    open_reader,
    open_writer,
    opening,
    unavailable,
    using,
)


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def test_the_writer_waits_for_the_disk(path: Path) -> None:
    """A commit that returned survives a loss of power."""
    connection = open_writer(path)
    assert pragma(connection, "journal_mode") == "wal"
    assert pragma(connection, "synchronous") == 2
    assert pragma(connection, "busy_timeout") == connection_module.BUSY_TIMEOUT_MS
    assert connection.isolation_level is None
    connection.close()


def test_a_reader_can_not_write(path: Path) -> None:
    """Only one connection writes."""
    writer = open_writer(path)
    writer.execute("CREATE TABLE a (x)")
    reader = open_reader(path)
    assert reader.execute("SELECT count(*) FROM a").fetchone() == (0,)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("INSERT INTO a VALUES (1)")
    reader.close()
    writer.close()


def test_switching_to_the_log_waits_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process opens the new file at the same moment."""
    busy = sqlite3.OperationalError("database is locked")
    busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
    answers: list[Exception | None] = [busy, busy, None]

    class Connection:
        def execute(self, text: str) -> Connection:
            if (answer := answers.pop(0)) is not None:
                raise answer
            return self

        def fetchone(self) -> None:
            return None

    monkeypatch.setattr(connection_module.time, "sleep", lambda seconds: None)
    connection_module._use_wal(Connection())
    assert answers == []
    answers += [busy] * 100
    with pytest.raises(sqlite3.OperationalError):
        connection_module._use_wal(Connection())


def test_a_folder_is_made_for_the_user_alone(tmp_path: Path) -> None:
    """What runs say is nobody else's business."""
    path = tmp_path / "new" / "deep" / "store.db"
    check_place(path)
    assert path.parent.is_dir()
    assert path.parent.stat().st_mode & 0o077 == 0


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    """With a name that would do."""
    with pytest.raises(StoreUnusable, match=r"it is a folder\. Name a file, such as"):
        check_place(tmp_path)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    """With the user, the folder and the reason."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnusable) as caught:
        check_place(tmp_path / "file" / "sub" / "store.db")
    assert f"user {os.getuid()} can't make the folder {tmp_path}/file/sub" in str(caught.value)


def test_a_place_that_may_not_be_written_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the user, the place and the command that helps."""
    path.write_bytes(b"")
    for denied in (path.parent, path):
        monkeypatch.setattr(
            connection_module.os, "access", lambda place, mode, denied=denied: place != denied
        )
        with pytest.raises(StoreUnusable) as caught:
            check_place(path)
        assert f"user {os.getuid()} may not write {denied}" in str(caught.value)
        assert f"chown {os.getuid()} {denied}" in str(caught.value)


def test_a_read_only_file_system_is_told_from_a_wrong_owner(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No chown helps there: a container with a read-only root has no volume."""
    flags = type("Flags", (), {"f_flag": os.ST_RDONLY})()
    monkeypatch.setattr(connection_module.os, "statvfs", lambda place: flags)
    monkeypatch.setattr(connection_module.os, "access", lambda place, mode: False)
    with pytest.raises(StoreUnusable, match=r"is read-only\. Mount a volume at") as caught:
        check_place(path)
    assert "chown" not in str(caught.value)


def test_an_old_library_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fail later, with a syntax error that nobody understands."""
    monkeypatch.setattr(connection_module.sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(StoreUnusable, match=r"too old\. Use a Python that was built with 3\.37"):
        check_place(path)


@pytest.mark.parametrize(
    ("code", "cause", "remedy"),
    [
        (sqlite3.SQLITE_FULL, "the disk is full", "Free some space"),
        (sqlite3.SQLITE_IOERR_FSYNC, "the disk reports an error", "check the disk"),
        (sqlite3.SQLITE_NOTADB, "not a SQLite database", "Name another file"),
        (sqlite3.SQLITE_CORRUPT, "damaged", "restore a backup"),
        (sqlite3.SQLITE_BUSY, "holds a lock", "fuser /data/store.db"),
        (sqlite3.SQLITE_READONLY, "may not write", "Check the owner"),
        (sqlite3.SQLITE_CANTOPEN, "can't open", "/data"),
        (sqlite3.SQLITE_MISUSE, "words of SQLite", "Look into the server's log"),
    ],
)
def test_an_error_is_explained(code: int, cause: str, remedy: str) -> None:
    """What it means, and what to do; with the words of SQLite for whoever searches for them."""
    error = sqlite3.OperationalError("words of SQLite")
    error.sqlite_errorcode = code
    path = Path("/data/store.db")
    found_cause, found_remedy = explain(path, error)
    assert cause in found_cause
    assert "words of SQLite" in found_cause
    assert remedy in found_remedy
    assert "{" not in found_cause + found_remedy
    assert str(path) in str(unavailable(path, error))


def test_what_goes_wrong_has_a_name(path: Path) -> None:
    """While opening, and later."""
    with pytest.raises(StoreUnusable), opening(path):
        raise sqlite3.DatabaseError("x")
    with pytest.raises(StoreUnusable), opening(path):
        raise PermissionError(13, "denied")
    with pytest.raises(JournalUnavailable), using(path):
        raise sqlite3.OperationalError("x")
