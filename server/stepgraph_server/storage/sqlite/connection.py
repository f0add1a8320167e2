"""How connections are opened, and what SQLite's errors mean to an operator.

Rules: every connection is in autocommit mode and says BEGIN and COMMIT itself. Only the writer's may write.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from stepgraph_server.storage.errors import JournalUnavailable, StoreUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OLDEST_SQLITE: Final = (3, 37, 0)
"""STRICT tables need it."""

BUSY_TIMEOUT_MS: Final = 5_000
"""Nobody else writes; another program may hold a lock for moments, when it opens or recovers the file."""

WRITER_CACHE_KIB: Final = 16 * 1024
"""Pages that the writer keeps: the ends of the index of every run that is under way should be among them."""

CHECKPOINT_PAGES: Final = 1_000
"""Every so many pages (4 MiB) a commit also moves the log into the file: 6 to 8 ms, measured beside a load of 20,000 appends
a second. Fewer pages cost throughput; 4,000 made it 20 to 60 ms, and none at all only puts it off."""

WAL_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""A log that grew beyond this, because a reader held it, is cut back to this when it starts anew."""


def open_writer(path: Path) -> sqlite3.Connection:
    """Open the connection that writes, making the file if there is none.

    Raises:
        sqlite3.Error: SQLite can't read the file.
    """
    _make(path)
    connection = _connect(path)
    _use_wal(connection)
    # FULL: a commit returns when its log is on the disk. NORMAL would lose the last commits with the power.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{WRITER_CACHE_KIB}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that can only read. The file must exist."""
    connection = _connect(path)
    connection.execute("PRAGMA query_only = 1")
    return connection


def _make(path: Path) -> None:
    """Make a file that only its user can read: it holds what people said. SQLite gives those beside it the same mode.

    A file that exists keeps its mode, which an operator may have widened for a backup.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _connect(path: Path) -> sqlite3.Connection:
    # Connections are made in one thread and closed in another, and used by one at a time.
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_MS / 1_000, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log, so that readers and the writer never wait for each other."""
    for attempt in range(50):
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            # The switch does not wait by itself: of two processes that open a new file, one is told to come again.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or attempt == 49:
                raise
            time.sleep(0.02)
        else:
            return


def check_place(path: Path) -> None:
    """Make the folder of a database if need be, and check what SQLite would only call "unable to open".

    Raises:
        StoreUnusable: Something is in the way.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        problem = f"the SQLite library {sqlite3.sqlite_version} is too old"
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise StoreUnusable(
            str(path), problem, f"Use a Python that was built with {needed} or newer"
        )
    folder = path.absolute().parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        problem = f"user {os.getuid()} can't make the folder {folder} ({error.strerror})"
        raise StoreUnusable(str(path), problem, "Make it, or name a file elsewhere") from error
    if path.is_dir():
        raise StoreUnusable(
            str(path), "it is a folder", f"Name a file, such as {path}/stepgraph.db"
        )
    # SQLite makes files beside the database, so it must be able to write the folder too.
    for place in (folder, path):
        if place.exists() and not os.access(place, os.R_OK | os.W_OK):
            if os.statvfs(place).f_flag & os.ST_RDONLY:
                problem = f"the file system of {place} is read-only"
                raise StoreUnusable(
                    str(path), problem, f"Mount a volume at {folder} that can be written"
                )
            problem = f"user {os.getuid()} may not write {place}"
            raise StoreUnusable(
                str(path), problem, f"Give it to that user (chown {os.getuid()} {place})"
            )


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Turn what goes wrong while a store is opened into StoreUnusable."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        cause, remedy = explain(path, error)
        raise StoreUnusable(str(path), cause, remedy) from error


@contextmanager
def using(path: Path) -> Iterator[None]:
    """Turn what goes wrong in a store that was opened into JournalUnavailable."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise unavailable(path, error) from error


def unavailable(path: Path, error: Exception) -> JournalUnavailable:
    """Return the error as callers of a store know it."""
    cause, remedy = explain(path, error)
    return JournalUnavailable(str(path), cause, remedy)


#: By primary result code: what is wrong, and what to do. {path}, {folder} and {user} are filled in.
_EXPLANATIONS: Final = {
    sqlite3.SQLITE_FULL: ("the disk is full", "Free some space on the disk of {folder}"),
    sqlite3.SQLITE_IOERR: (
        "the disk reports an error",
        "Look into the system's log, and check the disk of {folder}",
    ),
    sqlite3.SQLITE_NOTADB: (
        "it is not a SQLite database",
        "Name another file, or move that one away",
    ),
    sqlite3.SQLITE_CORRUPT: (
        "it is damaged",
        "Stop the server, keep a copy of the file with its -wal beside it, and restore a backup",
    ),
    sqlite3.SQLITE_BUSY: (
        "another program holds a lock on it",
        "Find it (fuser {path}), and end it; programs that only read don't lock",
    ),
    sqlite3.SQLITE_READONLY: (
        "user {user} may not write it",
        "Check the owner and mode of {path} and of the folder",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "user {user} can't open it, or a file beside it",
        "Check the owner and mode of {folder}, and the limit of open files",
    ),
}


def explain(path: Path, error: Exception) -> tuple[str, str]:
    """Return what is wrong and what to do, with the error's own words in it."""
    # Extended codes have the primary one in their low byte.
    code = getattr(error, "sqlite_errorcode", None)
    cause, remedy = _EXPLANATIONS.get(
        code & 0xFF if code is not None else -1, ("", "Look into the server's log")
    )
    place = {"path": path, "folder": path.absolute().parent, "user": os.getuid()}
    words = f"{cause.format(**place)} ({error})" if cause else str(error)
    return words, remedy.format(**place)
