"""The threads that read."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from stepgraph_server.storage.errors import JournalUnavailable
from stepgraph_server.storage.sqlite.readers import READERS, Readers

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def readers(path: Path, connection: sqlite3.Connection) -> AsyncIterator[Readers]:
    made = Readers(path)
    yield made
    await made.close()


def count(connection: sqlite3.Connection) -> int:
    return connection.execute("SELECT count FROM probe").fetchone()[0]


async def test_a_read_sees_one_moment(readers: Readers, connection: sqlite3.Connection) -> None:
    """What is written meanwhile belongs to the next read, and neither waits for the other."""

    def read_twice(reader: sqlite3.Connection) -> tuple[int, int]:
        first = count(reader)
        connection.execute("UPDATE probe SET count = count + 1")
        return first, count(reader)

    assert await readers.run(read_twice) == (0, 0)
    assert await readers.run(count) == 1


async def test_reads_go_on_beside_a_long_one(readers: Readers) -> None:
    """Each thread has a connection of its own, and there are only so many."""
    go_on = threading.Event()
    long_one = asyncio.gather(readers.run(lambda reader: go_on.wait(5)))
    for _ in range(5):
        assert await readers.run(count) == 0
    go_on.set()
    await long_one
    assert len(readers._connections) <= READERS


async def test_what_sqlite_says_is_explained(readers: Readers) -> None:
    """And the next read is not disturbed."""
    with pytest.raises(JournalUnavailable, match="no such table"):
        await readers.run(lambda reader: reader.execute("SELECT * FROM nowhere"))
    assert await readers.run(count) == 0


async def test_after_closing_nothing_is_read(readers: Readers) -> None:
    """Closing twice is harmless."""
    assert await readers.run(count) == 0
    await readers.close()
    await readers.close()
    with pytest.raises(JournalUnavailable, match="closed"):
        await readers.run(count)
