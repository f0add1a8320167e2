"""A process that appends for ever and says what is durable: `python -m tests.contracts.writing <database> <runs>`.

It prints one line per append that was reported, and is meant to be killed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stepgraph_server.storage.sqlite import SqliteStore
from tests.contracts.storing import append, key

if TYPE_CHECKING:
    from stepgraph_server.storage.records import Appended


async def write(path: Path, runs: int) -> None:
    store = SqliteStore(path)

    def on_appended(results: list[Appended]) -> None:
        for result in results:
            assert result.error is None, result.error
            one = result.append
            # Written before the next is submitted, and flushed: whoever reads it may rely on it.
            sys.stdout.write(f"{one.key.run_id} {one.last_sequence}\n")
            sys.stdout.flush()
            store.journal.submit(append(one.last_sequence + 1, key=one.key))

    await store.start(on_appended)
    for number in range(runs):
        run = await store.runs.get(key(f"r{number}"))
        last = run.progress.last_sequence if run else 0
        store.journal.submit(append(last + 1, key=key(f"r{number}")))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), int(sys.argv[2])))
