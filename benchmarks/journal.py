"""How many appends a second the journal takes: `python -m benchmarks.journal`.

Each run has one append in flight: the next is submitted when the last was reported, as the engine does. `--busy` adds so
many microseconds of work on the loop per append, because in a server the loop and the writer share one interpreter.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from stepgraph_server.core.instants import Instant
from stepgraph_server.storage.records import (
    Append,
    Appended,
    RunCreation,
    RunKey,
    RunProgress,
)
from stepgraph_server.storage.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Sequence


class Load:
    """Keeps one append of each run in flight until enough are done."""

    def __init__(self, store: SqliteStore, batch: bytes, appends: int, busy_s: float) -> None:
        self._store = store
        self._batch = batch
        self._left = appends
        self._busy_s = busy_s
        self.done = asyncio.get_running_loop().create_future()
        self.in_flight = 0
        self.groups = 0
        self.waits: list[float] = []

    def begin(self, runs: int) -> None:
        for number in range(runs):
            creation = RunCreation(
                graph_digest="sha256:0",
                graph_name="bench",
                graph_version=1,
                create_time=Instant(number),
                root_run_id=f"run-{number}",
            )
            self._submit(RunKey("default", f"run-{number}"), 1, creation)

    def on_appended(self, results: Sequence[Appended]) -> None:
        self.groups += 1
        now = time.perf_counter()
        for result in results:
            assert result.error is None, result.error
            assert isinstance(result.append.context, float)
            self.waits.append(now - result.append.context)
            self.in_flight -= 1
            end = time.perf_counter() + self._busy_s
            while time.perf_counter() < end:
                pass
            if self._left > 0:
                self._submit(result.append.key, result.append.last_sequence + 1)
        if not self.in_flight and not self.done.done():
            self.done.set_result(None)

    def _submit(self, key: RunKey, first: int, creation: RunCreation | None = None) -> None:
        self._left -= 1
        self.in_flight += 1
        last = first + 3
        self._store.journal.submit(
            Append(
                key=key,
                first_sequence=first,
                last_sequence=last,
                batch=self._batch,
                progress=RunProgress(
                    status=2, last_sequence=last, input_tokens=first, output_tokens=last
                ),
                creation=creation,
                context=time.perf_counter(),
            )
        )


async def measure(path: Path, options: argparse.Namespace, runs: int) -> str:
    """Return one line, but for the size of the file."""
    store = SqliteStore(path)
    load = Load(store, os.urandom(options.bytes), options.appends, options.busy * 1e-6)
    await store.start(load.on_appended)
    began, cpu = time.perf_counter(), time.process_time()
    load.begin(runs)
    await load.done
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    waits = sorted(load.waits)
    await store.close()
    count = len(waits)
    return (
        f"{runs:5} runs  {count / seconds:8.0f} appends/s  {count / load.groups:6.1f} a group  "
        f"{cpu / count * 1e6:6.1f} us CPU each  durable after p50 {waits[count // 2] * 1e3:6.2f} "
        f"p99 {waits[count * 99 // 100] * 1e3:6.2f} max {waits[-1] * 1e3:6.1f} ms"
    )


def main() -> None:
    """Measure with each number of runs, on a new file each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 64, 256])
    parser.add_argument("--appends", type=int, default=50_000)
    parser.add_argument("--bytes", type=int, default=700)
    parser.add_argument("--busy", type=float, default=0.0, help="microseconds on the loop each")
    parser.add_argument("--folder", type=Path, help="where to write; default: the temporary folder")
    options = parser.parse_args()
    for runs in options.runs:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            path = Path(folder) / "journal.db"
            line = asyncio.run(measure(path, options, runs))
            stored = path.stat().st_size / options.appends / options.bytes
            print(f"{line}  {stored:5.2f} bytes stored a byte")


if __name__ == "__main__":
    main()
