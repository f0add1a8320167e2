"""Brings the schema of a database up to date.

Rules: the files of `storage/migrations` are applied in the order of their numbers, each in a transaction of its own that also
sets `user_version`; so a crash leaves a whole version, and of two processes that race, the second finds the work done.
"""

from __future__ import annotations

import sqlite3
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from stepgraph_server.storage.errors import StoreTooNew, StoreUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

APPLICATION_ID: Final = 0x53746750
"""Marks our files ("StgP"), so that a database of another program is not taken for an empty one of ours."""


def known_migrations() -> list[str]:
    """Return the texts of all migrations; the first makes version 1 of an empty file."""
    folder = files("stepgraph_server.storage").joinpath("migrations")
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=str)
    return [file.read_text(encoding="utf-8") for file in found]


def migrate(connection: sqlite3.Connection, path: str, migrations: Sequence[str]) -> None:
    """Apply what is missing. The connection must be in autocommit mode.

    Raises:
        StoreTooNew: The file has a version that `migrations` does not reach.
        StoreUnusable: The file belongs to another program.
        sqlite3.Error: SQLite could not read or write the file.
    """
    while (version := _checked_version(connection, path, len(migrations))) < len(migrations):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Read again under the lock: another process may have been here in between.
            if _checked_version(connection, path, len(migrations)) == version:
                for statement in statements(migrations[version]):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _checked_version(connection: sqlite3.Connection, path: str, known: int) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    is_empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    if application != APPLICATION_ID and not (is_empty and version == 0):
        problem = "it is a database of another program"
        raise StoreUnusable(path, problem, "Name another file")
    if version > known:
        raise StoreTooNew(path, version, known)
    return version


def statements(text: str) -> Iterator[str]:
    """Yield the statements of a script, one by one: `executescript` would commit before it begins."""
    pending = ""
    for line in text.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
