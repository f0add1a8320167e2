"""The thread that writes."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from stepgraph_server.storage.errors import JournalUnavailable
from stepgraph_server.storage.sqlite import writer as writer_module
from stepgraph_server.storage.sqlite.writer import Job, Writer
from tests.contracts.storing import append, errors, key

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stepgraph_server.storage.records import Appended


class Bed:
    """A writer, with what it reported."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.writer = Writer(path)
        self.groups: list[list[Appended]] = []
        self._changed = asyncio.Event()
        self._connection = connection

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.writer.start(self._connection, loop, self._on_appended)

    def _on_appended(self, results: list[Appended]) -> None:
        self.groups.append(results)
        self._changed.set()

    async def hold(self) -> threading.Event:
        """Keep the thread busy until the event is set, so that what is submitted has to wait."""
        busy, go_on = threading.Event(), threading.Event()

        def wait(connection: sqlite3.Connection) -> None:
            busy.set()
            go_on.wait(5)

        self.writer.post(Job(wait))
        await asyncio.to_thread(busy.wait)
        return go_on

    async def reported(self, count: int) -> list[Appended]:
        async with asyncio.timeout(5):
            while sum(map(len, self.groups)) < count:
                self._changed.clear()
                await self._changed.wait()
        return [result for group in self.groups for result in group]


@pytest.fixture
async def bed(path: Path, connection: sqlite3.Connection) -> AsyncIterator[Bed]:
    made = Bed(path, connection)
    made.start()
    yield made
    await made.writer.stop()


async def test_what_waits_is_one_group(bed: Bed) -> None:
    """One commit and one call, however many there are."""
    go_on = await bed.hold()
    for number in range(1, 101):
        bed.writer.submit(append(number))
    go_on.set()
    await bed.reported(100)
    assert [len(group) for group in bed.groups] == [100]


@pytest.mark.parametrize(("limit", "value"), [("GROUP_APPENDS", 4), ("GROUP_BYTES", 16)])
async def test_a_group_has_a_largest_size(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    """By number and by bytes."""
    monkeypatch.setattr(writer_module, limit, value)
    go_on = await bed.hold()
    for number in range(1, 11):
        bed.writer.submit(append(number, batch=b"1234"))
    go_on.set()
    results = await bed.reported(10)
    assert [len(group) for group in bed.groups] == [4, 4, 2]
    assert errors(results) == [None] * 10


async def test_a_job_has_a_transaction_of_its_own(bed: Bed) -> None:
    """It returns when it is durable."""
    await bed.writer.run(lambda connection: connection.execute("CREATE TABLE x (y)"))
    count = await bed.writer.run(
        lambda connection: connection.execute("SELECT count(*) FROM x").fetchone()[0]
    )
    assert count == 0


async def test_a_job_that_fails_changes_nothing_and_disturbs_nobody(bed: Bed) -> None:
    """What SQLite says becomes JournalUnavailable; anything else is raised as it is."""
    go_on = await bed.hold()
    bed.writer.submit(append(1))

    def fails(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE probe SET count = 77")
        raise KeyError("mine")

    def wrong(connection: sqlite3.Connection) -> None:
        connection.execute("SELECT * FROM nowhere")

    failing = asyncio.gather(bed.writer.run(fails), bed.writer.run(wrong), return_exceptions=True)
    await asyncio.sleep(0)
    bed.writer.submit(append(2))
    bed.writer.post(Job(wrong))
    go_on.set()
    mine, theirs = await failing
    assert isinstance(mine, KeyError)
    assert isinstance(theirs, JournalUnavailable)
    assert errors(await bed.reported(2)) == [None, None]
    count = await bed.writer.run(
        lambda connection: connection.execute("SELECT count FROM probe").fetchone()[0]
    )
    assert count == 0


async def test_whoever_gives_up_a_job_does_not_disturb_it(bed: Bed) -> None:
    """It is done all the same, well or not."""
    go_on = await bed.hold()

    def fails(connection: sqlite3.Connection) -> None:
        raise KeyError

    for work in (lambda connection: connection.execute("UPDATE probe SET count = 5"), fails):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await bed.writer.run(work)
    go_on.set()
    count = await bed.writer.run(
        lambda connection: connection.execute("SELECT count FROM probe").fetchone()[0]
    )
    assert count == 5


async def test_a_fault_of_ours_is_reported_and_the_thread_lives_on(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Callers wait for nothing else than this report."""
    assert bed.writer._group_writer is not None
    text = "a fault"
    with monkeypatch.context() as patch:

        def broken(group: object) -> None:
            raise RuntimeError(text)

        patch.setattr(bed.writer._group_writer, "write", broken)
        bed.writer.submit(append(1))
        (result,) = await bed.reported(1)
        assert isinstance(result.error, JournalUnavailable)
        assert "a fault" in str(result.error)
    assert caplog.records[0].action == "journal.fault"
    bed.writer.submit(append(1))
    assert errors(await bed.reported(2))[1:] == [None]


async def test_what_is_submitted_while_a_failure_is_heard_of_counts(
    path: Path, connection: sqlite3.Connection
) -> None:
    """A caller may answer a failure at once, with what fits."""
    writer = Writer(path)
    reported: list[Appended] = []

    def on_appended(results: list[Appended]) -> None:
        reported.extend(results)
        if results[0].error is not None:
            writer.submit(append(1))

    writer.start(connection, asyncio.get_running_loop(), on_appended)
    writer.submit(append(7))
    await asyncio.sleep(0.05)
    await writer.stop()
    assert errors(reported) == ["SequenceConflict", None]


async def test_before_it_is_started_nothing_can_be_done(path: Path) -> None:
    """And stopping is harmless."""
    writer = Writer(path)
    assert writer.head_position() == 0
    assert writer.backlog() == (0, 0)
    with pytest.raises(JournalUnavailable):
        await writer.run(lambda connection: None)
    await writer.stop()


async def test_stopping_ends_the_thread(bed: Bed) -> None:
    """After what was submitted; twice is harmless."""
    for number in range(1, 50):
        bed.writer.submit(append(number, key=key("x")))
    await bed.writer.stop()
    await bed.writer.stop()
    assert len(await bed.reported(49)) == 49
    assert not [one for one in threading.enumerate() if one.name == "stepgraph-writer"]


def test_a_loop_that_is_gone_ends_nothing_else(path: Path, connection: sqlite3.Connection) -> None:
    """The store was not closed: what was submitted is written, and nobody hears of it."""
    bed = Bed(path, connection)

    async def submit_and_leave() -> None:
        bed.start()
        go_on = await bed.hold()
        bed.writer.submit(append(1))
        go_on_later.append(go_on)

    go_on_later: list[threading.Event] = []
    asyncio.run(submit_and_leave())
    go_on_later[0].set()
    bed.writer._queue.put(writer_module._Stop())
    assert bed.writer._thread is not None
    bed.writer._thread.join(5)
    assert not bed.writer._thread.is_alive()
    assert connection.execute("SELECT count(*) FROM journal").fetchone() == (1,)
