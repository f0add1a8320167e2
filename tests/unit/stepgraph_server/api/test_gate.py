"""While the server stops nobody comes in, and whoever would stay for ever is told to leave."""

from __future__ import annotations

import asyncio

import pytest

from stepgraph_server.api.gate import Gate
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.instants import SECOND


@pytest.fixture
def gate():
    return Gate(max_watchers=2, max_sessions=1, retry_after=2 * SECOND)


async def test_a_shut_gate_lets_nobody_in_and_says_when_to_come_back(gate):
    gate.shut()

    with pytest.raises(Refused) as call, gate.call():
        pass
    with pytest.raises(Refused) as stream, gate.stream("watch"):
        pass

    assert gate.is_shut
    for caught in (call, stream):
        assert caught.value.reason == "SHUTTING_DOWN"
        assert caught.value.retry_after == 2 * SECOND


async def test_there_are_only_so_many_streams_of_a_kind(gate):
    with gate.stream("session"), gate.stream("watch"), gate.stream("watch"):
        assert gate.count("watch") == 2
        with pytest.raises(Refused) as caught, gate.stream("watch"):
            pass

    assert caught.value.reason == "OVERLOADED"
    assert caught.value.metadata == {"limit_name": "max_watchers"}
    assert gate.count("watch") == 0


async def test_ending_streams_cancels_what_they_wait_for_and_only_their_kind(gate):
    told = []

    async def stay_in(kind):
        try:
            with gate.stream(kind) as stay:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert stay.is_ended
            stay.forgive()
            await asyncio.sleep(0)
            told.append(kind)

    async with asyncio.TaskGroup() as group:
        group.create_task(stay_in("watch"))
        group.create_task(stay_in("session"))
        await asyncio.sleep(0)

        assert gate.end_streams("session") == 1
        await gate.until_empty("session")
        assert gate.count("watch") == 1

        assert gate.end_streams("watch") == 1
        assert gate.end_streams("watch") == 1, "ending twice is harmless"
        await gate.until_empty("watch", "session")

    assert told == ["session", "watch"]


async def test_one_can_wait_until_short_calls_are_done(gate):
    async def call():
        with gate.call():
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        group.create_task(call())
        await asyncio.sleep(0)
        gate.shut()
        await asyncio.wait_for(gate.until_empty(), 5)
