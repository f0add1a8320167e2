"""The store in one SQLite file."""

from __future__ import annotations

from stepgraph_server.storage.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
