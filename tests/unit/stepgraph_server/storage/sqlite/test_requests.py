"""Request ids in a file; that they keep the contract is tested in tests/contracts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.contracts.storing import append, errors, request

if TYPE_CHECKING:
    from tests.contracts.storing import Bench


async def test_one_of_many_at_the_same_time_stands(bench: Bench) -> None:
    """All of them get the same record."""
    records = [request(response=str(number).encode()) for number in range(20)]
    found = await asyncio.gather(
        *(bench.store.requests.put("default", record) for record in records)
    )
    assert len(set(found)) == 1
    assert found[0] in records


async def test_those_that_travel_and_those_that_come_alone_are_one_set(bench: Bench) -> None:
    """An append finds what was put alone, and the reverse."""
    await bench.store.requests.put("default", request("alone"))
    results = await bench.submit(append(1, request=request("alone")))
    assert errors(results) == ["RequestIdReused"]
    await bench.submit(append(1, request=request("along")))
    other = request("along", response=b"other")
    assert await bench.store.requests.put("default", other) == request("along")
