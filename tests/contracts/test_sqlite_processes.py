"""What a store in a file promises beyond one process: crashes, a second process, backups."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stepgraph_server.storage.errors import StoreInUse
from stepgraph_server.storage.sqlite import SqliteStore
from stepgraph_server.storage.sqlite.connection import open_writer
from stepgraph_server.storage.sqlite.migrate import known_migrations, migrate
from tests.contracts.storing import Bench, append, errors, key

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
STARTED: list[subprocess.Popen[str]] = []


def python(*arguments: str, **options: object) -> subprocess.Popen[str]:
    paths = os.pathsep.join(str(ROOT / name) for name in ("protos", "server", "."))
    process = subprocess.Popen(
        (sys.executable, *arguments),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    STARTED.append(process)
    return process


@pytest.fixture(autouse=True)
def _nobody_is_left() -> Iterator[None]:
    yield
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.kill()
            process.communicate()


def read_whole_lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith("\n"):
            yield line


async def test_every_append_that_was_reported_survives_a_kill(tmp_path: Path) -> None:
    """kill -9 of the writer, and the file is whole and has all that was said to be durable."""
    path = tmp_path / "store.db"
    reported: dict[str, int] = {}
    for count in (1_500, 700):
        process = python("-m", "tests.contracts.writing", str(path), "20")
        for number, line in enumerate(read_whole_lines(process)):
            run_id, last = line.split()
            reported[run_id] = int(last)
            if number == count:
                process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    assert len(reported) == 20

    bench = await Bench(SqliteStore(path)).start()
    for run_id, last in reported.items():
        run = await bench.store.runs.get(key(run_id))
        assert run is not None
        assert run.progress.last_sequence >= last
        batches = await bench.store.journal.read(key(run_id), 0, 100_000_000)
        # As many batches as the row says: what was not reported is there as a whole, or not at all.
        assert [one.first_sequence for one in batches] == list(
            range(1, run.progress.last_sequence + 1)
        )
        (result,) = await bench.submit(append(run.progress.last_sequence + 1, key=key(run_id)))
        assert result.error is None
    await bench.store.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


async def test_a_second_process_is_refused(tmp_path: Path) -> None:
    """With the file, the other process and the remedy; once the other is gone, it may."""
    path = tmp_path / "store.db"
    process = python("-m", "tests.contracts.writing", str(path), "1")
    assert process.stdout is not None
    process.stdout.readline()
    with pytest.raises(StoreInUse) as caught:
        await Bench(SqliteStore(path)).start()
    for part in (str(path), str(process.pid), f"{path}.lock", "Stop that server"):
        assert part in str(caught.value)
    process.kill()
    process.communicate()
    # The lock ends with its process, however that ended.
    bench = await Bench(SqliteStore(path)).start()
    await bench.store.close()


async def test_a_second_store_of_one_process_is_refused(tmp_path: Path) -> None:
    """The lock is between stores, not only between processes."""
    path = tmp_path / "store.db"
    bench = await Bench(SqliteStore(path)).start()
    with pytest.raises(StoreInUse):
        await Bench(SqliteStore(path)).start()
    await bench.store.close()
    again = await Bench(SqliteStore(path)).start()
    await again.store.close()


MIGRATE = """
import sys
from pathlib import Path
from stepgraph_server.storage.sqlite.connection import open_writer
from stepgraph_server.storage.sqlite.migrate import known_migrations, migrate
sys.stdin.readline()
connection = open_writer(Path(sys.argv[1]))
migrate(connection, sys.argv[1], known_migrations())
print(connection.execute("PRAGMA user_version").fetchone()[0])
"""


def test_processes_that_race_to_migrate_agree(tmp_path: Path) -> None:
    """Nobody fails, and each statement runs once."""
    for number in range(5):
        path = str(tmp_path / f"store{number}.db")
        racers = [python("-c", MIGRATE, path, stdin=subprocess.PIPE) for _ in range(4)]
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        for racer in racers:
            out, err = racer.communicate(timeout=20)
            assert (racer.returncode, out.strip()) == (0, str(len(known_migrations()))), err


async def test_backups_and_appends_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Copies in a loop beside a load: nothing is ever locked, and each copy is whole."""
    path = tmp_path / "store.db"
    bench = await Bench(SqliteStore(path)).start()
    await bench.submit(*(append(1, key=key(f"r{number}")) for number in range(16)))
    stop = threading.Event()
    copies: list[int] = []
    failures: list[Exception] = []

    def copy_again_and_again() -> None:
        try:
            while not stop.is_set():
                copy = tmp_path / f"copy{len(copies)}.db"
                with sqlite3.connect(path) as source, sqlite3.connect(copy) as target:
                    # Now and then in small steps, each of which another commit may come between.
                    source.backup(target, pages=-1 if len(copies) % 2 else 1_000)
                    assert target.execute("PRAGMA integrity_check").fetchone() == ("ok",)
                    copies.append(target.execute("SELECT count(*) FROM journal").fetchone()[0])
                source.close()
                target.close()
                copy.unlink()
        except Exception as error:  # noqa: BLE001 shown below
            failures.append(error)

    thread = threading.Thread(target=copy_again_and_again)
    thread.start()
    end = time.monotonic() + 3
    number = 1
    while time.monotonic() < end or len(copies) < 3:
        assert not failures
        number += 1
        results = await bench.submit(
            *(append(number, key=key(f"r{run}"), batch=bytes(700)) for run in range(16))
        )
        assert errors(results) == [None] * 16
    stop.set()
    await asyncio.to_thread(thread.join)
    assert not failures
    assert copies == sorted(copies)
    assert copies[-1] > 16
    await bench.store.close()


async def test_a_store_whose_files_were_copied_by_backup_opens(tmp_path: Path) -> None:
    """A copy is a store: nothing of it is bound to its place."""
    path, copy = tmp_path / "store.db", tmp_path / "elsewhere" / "copy.db"
    copy.parent.mkdir()
    bench = await Bench(SqliteStore(path)).start()
    await bench.submit(append(1, 3))
    with sqlite3.connect(path) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    source.close()
    target.close()
    await bench.store.close()
    again = await Bench(SqliteStore(copy)).start()
    (result,) = await again.submit(append(4))
    assert result.error is None
    await again.store.close()


def test_migrating_twice_changes_nothing(tmp_path: Path) -> None:
    """A start finds the schema as the last one left it."""
    path = tmp_path / "store.db"
    for _ in range(2):
        connection = open_writer(path)
        migrate(connection, str(path), known_migrations())
        connection.close()
