"""Graphs in SQLite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from stepgraph_server.core.instants import Instant
from stepgraph_server.storage.errors import JournalUnavailable
from stepgraph_server.storage.records import GraphVersionRecord
from stepgraph_server.storage.sqlite.queries import QUERIES

if TYPE_CHECKING:
    import sqlite3

    from stepgraph_server.storage.graphs import GraphReference
    from stepgraph_server.storage.sqlite.readers import Readers
    from stepgraph_server.storage.sqlite.writer import Writer

_VersionRow: TypeAlias = tuple[str, int, str, int]

MAX_REMEMBERED: Final = 256
"""So many graphs are remembered, or every start of a run would read one: a way through another thread and back."""

MAX_REMEMBERED_BYTES: Final = 64 * 1024
"""And none with a larger definition."""

#: Above every version.
_NO_VERSION: Final = 2**62


class SqliteGraphs:
    """See Graphs."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers
        # What was read and still holds: nobody else writes this file, so only `put` changes what a reference stands for.
        self._remembered: dict[tuple[str, GraphReference], GraphVersionRecord] = {}
        # Writes that were begun. One whose caller is cancelled may still be done, so then nothing is remembered any more.
        self._unsettled = 0

    async def put(
        self, namespace: str, name: str, digest: str, definition: bytes, create_time: Instant
    ) -> tuple[GraphVersionRecord, bool]:
        """See Graphs."""
        arguments = {
            "namespace": namespace,
            "name": name,
            "digest": digest,
            "definition": definition,
            "create_time": create_time,
        }
        work = _put_version if name else _put_unnamed
        self._unsettled += 1
        try:
            row, created = await self._writer.run(lambda connection: work(connection, arguments))
        except JournalUnavailable:
            self._unsettled -= 1
            raise
        self._unsettled -= 1
        # A new one: who is reading now keeps what is read in the old one.
        self._remembered = {}
        return _record(row, definition), created

    async def get(self, namespace: str, reference: GraphReference) -> GraphVersionRecord | None:
        """See Graphs."""
        remembered = self._remembered
        known = remembered.get((namespace, reference))
        if known is not None and not self._unsettled:
            return known
        record = await self._read(namespace, reference)
        if (
            record is not None
            and len(record.definition) <= MAX_REMEMBERED_BYTES
            and len(remembered) < MAX_REMEMBERED
        ):
            remembered[namespace, reference] = record
        return record

    async def _read(self, namespace: str, reference: GraphReference) -> GraphVersionRecord | None:
        query = QUERIES["graph_by_version" if reference.name else "graph_by_digest"]
        arguments = {
            "namespace": namespace,
            "name": reference.name,
            "version": reference.version,
            "digest": reference.digest,
        }
        row = await self._readers.run(
            lambda connection: connection.execute(query, arguments).fetchone()
        )
        return _record(row[:4], row[4]) if row else None

    async def list_names(
        self, namespace: str, after_name: str, limit: int
    ) -> list[GraphVersionRecord]:
        """See Graphs."""
        arguments = {"namespace": namespace, "after_name": after_name, "limit": limit}
        rows = await self._readers.run(
            lambda connection: connection.execute(QUERIES["list_names"], arguments).fetchall()
        )
        return [_record(row) for row in rows]

    async def list_versions(
        self, namespace: str, name: str, before_version: int | None, limit: int
    ) -> list[GraphVersionRecord]:
        """See Graphs."""
        arguments = {
            "namespace": namespace,
            "name": name,
            "before_version": _NO_VERSION if before_version is None else before_version,
            "limit": limit,
        }
        rows = await self._readers.run(
            lambda connection: connection.execute(QUERIES["list_versions"], arguments).fetchall()
        )
        return [_record(row) for row in rows]


def _put_version(
    connection: sqlite3.Connection, arguments: dict[str, object]
) -> tuple[_VersionRow, bool]:
    found = connection.execute(QUERIES["graph_by_name_and_digest"], arguments).fetchone()
    if found is not None:
        return found, False
    latest = connection.execute(QUERIES["latest_version"], arguments).fetchone()[0]
    connection.execute(QUERIES["insert_graph"], arguments)
    connection.execute(QUERIES["insert_graph_version"], {**arguments, "version": latest + 1})
    return connection.execute(QUERIES["graph_by_name_and_digest"], arguments).fetchone(), True


def _put_unnamed(
    connection: sqlite3.Connection, arguments: dict[str, object]
) -> tuple[_VersionRow, bool]:
    created = connection.execute(QUERIES["insert_graph"], arguments).rowcount == 1
    stored = connection.execute(QUERIES["unnamed_graph"], arguments).fetchone()
    return stored, created


def _record(row: _VersionRow, definition: bytes = b"") -> GraphVersionRecord:
    name, version, digest, create_time = row
    return GraphVersionRecord(
        name=name,
        version=version,
        digest=digest,
        create_time=Instant(create_time),
        definition=definition,
    )
