"""One process per database file.

Rules: the lock is `flock` on a file of its own beside the database, so it ends with the process however that ends, and does not
touch SQLite's own locks: programs that only read, such as a backup, go on working.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from stepgraph_server.storage.errors import StoreInUse

if TYPE_CHECKING:
    from pathlib import Path


class FileLock:
    """Holds the lock of a database from `acquire` to `release`."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(f"{database.name}.lock")
        self._file = -1

    def acquire(self) -> None:
        """Take the lock, or fail at once.

        Raises:
            StoreInUse: Another process, or another store of this one, has it.
            OSError: The lock file can't be made.
        """
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _process_id(os.read(file, 32))
            os.close(file)
            raise StoreInUse(str(self._database), str(self._path), holder) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file = file

    def release(self) -> None:
        """Let go. Repeating it is harmless."""
        if self._file < 0:
            return
        # The file stays: whoever waits to lock it may have it open, and would then lock a file without a name.
        os.ftruncate(self._file, 0)
        os.close(self._file)
        self._file = -1


def _process_id(text: bytes) -> int:
    """Return the holder, or 0 when it has not written itself down yet."""
    with suppress(ValueError):
        return int(text)
    return 0
