"""The store in memory; that it keeps the contracts is tested in tests/contracts."""

from __future__ import annotations

import asyncio

import pytest

from stepgraph_server.storage.errors import JournalUnavailable
from stepgraph_server.storage.memory import MemoryStore
from tests.contracts.storing import Bench, append, errors, key


async def test_nothing_is_reported_before_the_caller_goes_on() -> None:
    """As with a real disk: a submit returns before it is durable."""
    bench = await Bench(MemoryStore()).start()
    bench.store.journal.submit(append(1))
    bench.store.journal.submit(append(2))
    assert bench.reported == []
    assert await bench.store.runs.get(key()) is None
    await asyncio.sleep(0)
    assert [len(group) for group in bench.groups] == [2]
    await bench.store.close()


async def test_it_can_be_made_unavailable() -> None:
    """For tests of what a server does when its disk is full; later it goes on."""
    bench = await Bench(MemoryStore()).start()
    await bench.submit(append(1))
    bench.store.journal.unavailable_because = "the disk is full"
    results = await bench.submit(append(2), append(1, key=key("r2")))
    assert errors(results) == ["JournalUnavailable"] * 2
    assert "the disk is full" in str(results[0].error)
    with pytest.raises(JournalUnavailable):
        await bench.store.check_writable()
    bench.store.journal.unavailable_because = ""
    await bench.store.check_writable()
    assert errors(await bench.submit(append(2))) == [None]
    await bench.store.close()


async def test_it_has_everything_when_it_is_started_again() -> None:
    """A test may restart a server on it."""
    store = MemoryStore()
    bench = await Bench(store).start()
    await bench.submit(append(1))
    await store.close()
    again = await Bench(store).start()
    assert errors(await again.submit(append(2), append(1))) == [None, "RunExists"]
    assert len(bench.reported) == 1
    await store.close()
