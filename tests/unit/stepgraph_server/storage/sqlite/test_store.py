"""Opening and closing a store in a file."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from typing import TYPE_CHECKING

import pytest

from stepgraph_server.storage.errors import JournalUnavailable, StoreTooNew, StoreUnusable
from stepgraph_server.storage.sqlite import SqliteStore
from tests.contracts.storing import Bench, append, errors, key

if TYPE_CHECKING:
    from pathlib import Path


async def test_closing_leaves_one_file(path: Path) -> None:
    """The log is emptied into it; the lock file stays and says nothing."""
    bench = await Bench(SqliteStore(path)).start()
    await bench.submit(append(1))
    await bench.store.journal.read(key(), 0, 100)
    await bench.store.close()
    await bench.store.close()
    assert sorted(file.name for file in path.parent.iterdir()) == ["store.db", "store.db.lock"]


async def test_only_its_user_can_read_the_data(path: Path) -> None:
    """Nor what stands beside it, whatever the umask says; a mode that an operator has given stays."""
    before = os.umask(0)
    try:
        bench = await Bench(SqliteStore(path)).start()
        await bench.submit(append(1))
        files = await asyncio.to_thread(lambda: sorted(path.parent.iterdir()))
        modes = {file.name: file.stat().st_mode & 0o777 for file in files}
        assert {"store.db", "store.db-wal", "store.db-shm", "store.db.lock"} == set(modes)
        assert set(modes.values()) == {0o600}
        await bench.store.close()
        await asyncio.to_thread(path.chmod, 0o640)
        bench = await Bench(SqliteStore(path)).start()
        await bench.store.close()
        assert (await asyncio.to_thread(path.stat)).st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


async def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    """It is left as it is, and the lock is free again."""
    await asyncio.to_thread(path.write_bytes, b"hello" * 1_000)
    for _ in range(2):
        with pytest.raises(StoreUnusable, match="it is not a SQLite database"):
            await Bench(SqliteStore(path)).start()
    assert await asyncio.to_thread(path.read_bytes) == b"hello" * 1_000
    await SqliteStore(path).close()


async def test_a_database_of_another_program_is_refused(path: Path) -> None:
    """It gets no tables of ours."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StoreUnusable, match="another program"):
        await Bench(SqliteStore(path)).start()


async def test_a_newer_store_is_refused(path: Path) -> None:
    """And can be opened by the newer server again."""
    bench = await Bench(SqliteStore(path)).start()
    await bench.store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreTooNew, match="version 99"):
        await Bench(SqliteStore(path)).start()


async def test_a_full_disk_refuses_appends_and_readiness_until_there_is_room(path: Path) -> None:
    """Nothing is lost or half stored, and it goes on by itself."""
    bench = await Bench(SqliteStore(path)).start()
    await bench.submit(append(1))
    connection = bench.store._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    results = await bench.submit(append(2, batch=bytes(100_000)), append(1, key=key("r2")))
    assert errors(results) == ["JournalUnavailable"] * 2
    assert "the disk is full" in str(results[0].error)
    with pytest.raises(JournalUnavailable):
        await bench.store.graphs.put("default", "g", "sha256:1", bytes(100_000), 1)
    run = await bench.store.runs.get(key())
    assert run is not None
    assert run.progress.last_sequence == 1
    connection.execute("PRAGMA max_page_count = 1000000")
    results = await bench.submit(append(2, batch=bytes(100_000)), append(1, key=key("r2")))
    assert errors(results) == [None, None]
    await bench.store.check_writable()
    await bench.store.close()


async def test_what_was_being_written_when_the_store_ended_is_deleted(path: Path) -> None:
    """Contents that nobody will ever complete."""
    bench = await Bench(SqliteStore(path)).start()
    await bench.store.close()
    with sqlite3.connect(path) as connection:
        connection.execute(
            "INSERT INTO contents VALUES (1, 'default', '', 3, '', 1, 1, 0), (2, 'd', 'x', 3, '', 1, 1, 1)"
        )
        connection.executemany(
            "INSERT INTO content_chunks VALUES (NULL, ?, ?, x'00')",
            [(content, place) for content in (1, 2) for place in range(20)],
        )
    connection.close()
    bench = await Bench(SqliteStore(path)).start()
    await bench.store.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT content_key FROM contents").fetchall() == [(2,)]
        assert connection.execute("SELECT count(*) FROM content_chunks").fetchone() == (20,)
    connection.close()
