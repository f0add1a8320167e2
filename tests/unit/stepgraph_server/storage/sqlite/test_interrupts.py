"""How questions are listed; that the lists are right is tested in tests/contracts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stepgraph_server.storage.sqlite.interrupts import SqliteInterrupts

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable


class Spy:
    """Carries out reads, and keeps how SQLite does it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.steps: list[str] = []

    async def run(self, read: Callable[[Spy], object]) -> object:
        return read(self)

    def execute(self, text: str, values: list[object]) -> sqlite3.Cursor:
        explained = self._connection.execute(f"EXPLAIN QUERY PLAN {text}", values)
        self.steps += [row[3] for row in explained]
        return self._connection.execute(text, values)


@pytest.mark.parametrize(
    ("arguments", "index"),
    [
        ((None, None, 1, None), "questions_by_status"),
        ((None, None, 1, (5, "i")), "questions_by_status"),
        (("r1", None, 0, None), "questions_by_run"),
        ((None, "r1", 0, None), "questions_by_root"),
    ],
)
async def test_a_page_is_read_from_an_index_in_order(
    connection: sqlite3.Connection, arguments: tuple[object, ...], index: str
) -> None:
    """Its cost does not grow with the number of questions that were ever asked."""
    spy = Spy(connection)
    assert await SqliteInterrupts(spy).list("default", *arguments, 50) == []
    assert index in spy.steps[0]
    assert not [step for step in spy.steps if "TEMP B-TREE" in step]
