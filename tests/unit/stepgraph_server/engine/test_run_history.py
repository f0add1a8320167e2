"""The events of a run, read from a thread that is not the loop's."""

from __future__ import annotations

import asyncio

import pytest

from stepgraph.v1.event_pb2 import EventBatch, RunEvent
from stepgraph_server.engine.run_history import RunHistory
from stepgraph_server.storage.errors import JournalUnavailable
from stepgraph_server.storage.records import RunKey, StoredBatch


def stored(first, last):
    batch = EventBatch(events=[RunEvent(sequence=each) for each in range(first, last + 1)])
    return StoredBatch(
        batch=batch.SerializeToString(), first_sequence=first, last_sequence=last, position=last
    )


class Journal:
    def __init__(self, error=None):
        self.error = error
        self.asked = None

    async def read(self, key, after_sequence, max_bytes):
        self.asked = key, after_sequence
        if self.error is not None:
            raise self.error
        return [stored(1, 3), stored(4, 5)]


async def test_what_follows_is_given_event_by_event():
    journal = Journal()
    events = await asyncio.to_thread(RunHistory(journal), "n", "r1", 2)
    assert [event.sequence for event in events] == [3, 4, 5]
    assert journal.asked == (RunKey("n", "r1"), 2)


async def test_what_can_not_be_read_is_not_there():
    journal = Journal(JournalUnavailable("j", "it is full", "Make room"))
    assert await asyncio.to_thread(RunHistory(journal), "n", "r1", 0) is None


async def test_nobody_waits_for_ever():
    class Slow(Journal):
        async def read(self, key, after_sequence, max_bytes):
            await asyncio.Event().wait()

    assert await asyncio.to_thread(RunHistory(Slow(), patience_s=0.01), "n", "r1", 0) is None
    await asyncio.sleep(0)  # what was given up is cancelled in the next turn


@pytest.mark.filterwarnings("error")
def test_a_loop_that_is_gone_is_noticed():
    async def make():
        return RunHistory(Journal())

    assert asyncio.run(make())("n", "r1", 0) is None
