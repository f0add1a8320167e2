"""Stored values in a file; that they come back is tested in tests/contracts."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from typing import TYPE_CHECKING

import pytest

from stepgraph.v1 import value_pb2
from stepgraph_server.storage.errors import ValueMismatch
from stepgraph_server.storage.sqlite.values import DISCARDED_AT_ONCE
from stepgraph_server.storage.values import VALUE_CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.contracts.storing import Bench

CONTENT = bytes((DISCARDED_AT_ONCE + 2) * VALUE_CHUNK_BYTES)
RIGHT = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


def header(digest: str = RIGHT) -> value_pb2.StoredValue:
    return value_pb2.StoredValue(digest=digest, size_bytes=len(CONTENT))


async def whole() -> AsyncIterator[bytes]:
    yield CONTENT


async def cancelled(task: asyncio.Task[object]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def left(path: Path) -> tuple[int, int]:
    """Return how many contents and chunks there are, once cleaning is over."""
    for _ in range(500):
        await asyncio.sleep(0.005)
        with sqlite3.connect(path) as connection:
            # One statement, so one snapshot: the cleaning may go on between two.
            *found, unfinished = connection.execute(
                "SELECT (SELECT count(*) FROM contents), (SELECT count(*) FROM content_chunks),"
                " (SELECT count(*) FROM contents WHERE NOT complete)"
            ).fetchone()
        connection.close()
        if unfinished == 0:
            return tuple(found)
    pytest.fail("it was not cleaned up")


async def test_a_content_that_is_refused_is_deleted_in_steps(bench: Bench, path: Path) -> None:
    """Nobody waits for it, and each step is short."""
    with pytest.raises(ValueMismatch):
        await bench.store.values.put("default", header("sha256:other"), whole(), create_time=1)
    assert await left(path) == (0, 0)


async def test_a_content_that_exists_is_not_kept_twice(bench: Bench, path: Path) -> None:
    """Two writers at the same time: one of them stays."""
    await asyncio.gather(
        *(bench.store.values.put("default", header(), whole(), create_time=1) for _ in range(2))
    )
    assert await left(path) == (1, DISCARDED_AT_ONCE + 2)


async def test_a_writer_that_is_cancelled_leaves_nothing(bench: Bench, path: Path) -> None:
    """Its caller went away in the middle of the content."""
    is_stuck = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield CONTENT[: 3 * VALUE_CHUNK_BYTES]
        is_stuck.set()
        await asyncio.Event().wait()

    putting = asyncio.create_task(
        bench.store.values.put("default", header(), stuck(), create_time=1)
    )
    await is_stuck.wait()
    await cancelled(putting)
    assert await left(path) == (0, 0)


@pytest.mark.parametrize("turns", range(12))
async def test_a_writer_that_is_cancelled_at_any_time_leaves_nothing_or_the_whole(
    bench: Bench, path: Path, turns: int
) -> None:
    """What is in the writer's queue is done all the same: a content that became visible keeps all its chunks."""
    steps = [0]

    async def counted(work: object) -> object:
        steps[0] += 1
        if steps[0] > turns:
            # The job is handed over, and its caller is gone before it hears of it.
            asyncio.get_running_loop().call_soon(putting.cancel)
        return await run(work)

    run = bench.store.values._writer.run
    bench.store.values._writer.run = counted
    putting = asyncio.create_task(
        bench.store.values.put("default", header(), whole(), create_time=1)
    )
    await asyncio.wait([putting])
    bench.store.values._writer.run = run
    # Everything that was in the queue has been done when this has.
    await bench.store.check_writable()
    found = await left(path)
    is_whole = await bench.store.values.stat("default", RIGHT) is not None
    assert found == ((1, DISCARDED_AT_ONCE + 2) if is_whole else (0, 0))


async def test_a_read_gives_bytes_of_one_chunk(bench: Bench) -> None:
    """So that a part of a large content costs as much as the part."""
    await bench.store.values.put("default", header(), whole(), create_time=1)
    read = bench.store.values.read
    near_end = VALUE_CHUNK_BYTES - 10
    assert len(await read("default", RIGHT, near_end, 100) or b"") == 10
    assert len(await read("default", RIGHT, VALUE_CHUNK_BYTES, 100) or b"") == 100
