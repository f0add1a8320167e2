"""One process per database file; between processes it is tested in tests/contracts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from stepgraph_server.storage.errors import StoreInUse
from stepgraph_server.storage.sqlite.lock import FileLock

if TYPE_CHECKING:
    from pathlib import Path


def test_a_lock_is_held_once(path: Path) -> None:
    """The second hears who has it; after the release it may have it."""
    first, second = FileLock(path), FileLock(path)
    first.acquire()
    with pytest.raises(StoreInUse) as caught:
        second.acquire()
    assert caught.value.holder == os.getpid()
    first.release()
    first.release()
    second.acquire()
    second.release()


def test_a_holder_that_has_not_written_itself_down_is_unknown(path: Path) -> None:
    """It locked the file a moment ago."""
    first = FileLock(path)
    first.acquire()
    path.with_name("store.db.lock").write_text("")
    with pytest.raises(StoreInUse, match="another process uses it") as caught:
        FileLock(path).acquire()
    assert caught.value.holder == 0
    first.release()


def test_a_lock_file_that_was_left_behind_does_not_matter(path: Path) -> None:
    """The file is not the lock, and the last holder is not in it any more."""
    lock_path = path.with_name("store.db.lock")
    lock_path.write_text("12345678901\n")
    lock = FileLock(path)
    lock.acquire()
    assert lock_path.read_text() == f"{os.getpid()}\n"
    lock.release()
    assert lock_path.read_text() == ""
