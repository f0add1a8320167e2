"""The journal in a file; that it keeps the contract is tested in tests/contracts."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING

from tests.contracts.storing import append, key

if TYPE_CHECKING:
    from pathlib import Path

    from tests.contracts.storing import Bench


async def test_rows_stand_in_the_order_of_commits(bench: Bench, path: Path) -> None:
    """Whatever run they belong to: the table only ever grows at its end."""
    for number in range(1, 4):
        await bench.submit(*(append(number, key=key(f"r{run}")) for run in range(3)))
    with sqlite3.connect(path) as connection:
        rows = connection.execute(
            "SELECT rowid, position, first_sequence FROM journal ORDER BY rowid"
        ).fetchall()
    connection.close()
    assert [row[0] for row in rows] == list(range(1, 10))
    assert all(rowid == position for rowid, position, _ in rows)
    assert [row[2] for row in rows] == [1, 1, 1, 2, 2, 2, 3, 3, 3]


async def test_a_read_that_was_cut_holds_no_lock(bench: Bench, path: Path) -> None:
    """An open read would keep the log from being emptied, for ever."""
    await bench.submit(*(append(number, batch=bytes(100)) for number in range(1, 50)))
    assert len(await bench.store.journal.read(key(), 0, 300)) == 3
    assert len(await bench.store.journal.read_positions("default", 0, 300)) == 3
    with sqlite3.connect(path) as connection:
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    connection.close()
    assert busy == 0


async def test_reading_and_writing_go_on_beside_each_other(bench: Bench) -> None:
    """What was reported can be read at once, by whoever asks."""
    await bench.submit(append(1))
    stop = False

    async def read_on() -> int:
        reads = 0
        while not stop:
            head = bench.reported[-1].append.last_sequence
            found = await bench.store.journal.read(key(), 0, 10_000_000)
            assert found[-1].last_sequence >= head
            reads += 1
        return reads

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read_on())
        for number in range(2, 300):
            await bench.submit(append(number))
        stop = True
    assert reading.result() > 10
