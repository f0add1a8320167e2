"""Bringing a schema up to date; that processes may race is tested in tests/contracts."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from stepgraph_server.storage.errors import StoreTooNew, StoreUnusable
from stepgraph_server.storage.sqlite.migrate import (
    APPLICATION_ID,
    known_migrations,
    migrate,
    statements,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST = "CREATE TABLE a (x INTEGER);"
SECOND = "-- more\nALTER TABLE a ADD COLUMN y INTEGER;\nINSERT INTO a VALUES (1, 2);"


@pytest.fixture
def empty() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    yield connection
    connection.close()


def version(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def test_what_is_missing_is_applied_in_order(empty: sqlite3.Connection) -> None:
    """Once: a start with nothing new changes nothing."""
    migrate(empty, "p", [FIRST])
    assert version(empty) == 1
    migrate(empty, "p", [FIRST, SECOND])
    migrate(empty, "p", [FIRST, SECOND])
    assert version(empty) == 2
    assert empty.execute("SELECT * FROM a").fetchall() == [(1, 2)]
    assert empty.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)


def test_a_migration_that_fails_leaves_the_version_before(empty: sqlite3.Connection) -> None:
    """All of it or nothing."""
    with pytest.raises(sqlite3.OperationalError):
        migrate(empty, "p", [FIRST, "CREATE TABLE b (x INTEGER);\nCREATE TABLE a (x INTEGER);"])
    assert version(empty) == 1
    assert not empty.in_transaction
    assert empty.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (1,)


def test_a_newer_version_is_refused(empty: sqlite3.Connection) -> None:
    """With both versions and what to do; nothing is changed."""
    migrate(empty, "p", [FIRST, SECOND])
    with pytest.raises(StoreTooNew) as caught:
        migrate(empty, "/data/p.db", [FIRST])
    assert (caught.value.found, caught.value.known) == (2, 1)
    for part in ("/data/p.db", "version 2", "up to 1", "newer server"):
        assert part in str(caught.value)


@pytest.mark.parametrize("prepare", ["CREATE TABLE z (x)", "PRAGMA user_version = 3"])
def test_a_database_of_another_program_is_refused(empty: sqlite3.Connection, prepare: str) -> None:
    """It is not taken for an empty one, nor for an old one of ours."""
    empty.execute(prepare)
    with pytest.raises(StoreUnusable, match="another program"):
        migrate(empty, "p", [FIRST])
    assert version(empty) in {0, 3}


def test_a_script_is_cut_into_statements() -> None:
    """Semicolons in comments and texts end nothing."""
    text = "-- a; b\nCREATE TABLE a (x TEXT DEFAULT ';');\n\nSELECT\n 1;\n-- end\n"
    assert [one.strip() for one in statements(text)] == [
        "-- a; b\nCREATE TABLE a (x TEXT DEFAULT ';');",
        "SELECT\n 1;",
    ]


def test_the_known_migrations_make_the_schema(empty: sqlite3.Connection) -> None:
    """Each table is strict: a value of another type is refused, not bent."""
    migrate(empty, "p", known_migrations())
    assert version(empty) == len(known_migrations()) >= 1
    tables = empty.execute("SELECT name, strict FROM pragma_table_list WHERE schema = 'main'")
    assert [name for name, strict in tables if not strict and not name.startswith("sqlite_")] == []
