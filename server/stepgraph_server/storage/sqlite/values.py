"""Stored values in SQLite: a row that describes a content, and rows of chunks.

Rules: each chunk is a transaction of its own, so that a large content never holds up the journal. Until the last step has
marked it complete nobody can see a content; one that is given up is deleted, at the latest when the store starts again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from stepgraph.v1 import value_pb2
from stepgraph_server.storage.sqlite.queries import QUERIES
from stepgraph_server.storage.sqlite.writer import Job
from stepgraph_server.storage.values import MAX_VALUE_BYTES, VALUE_CHUNK_BYTES, ContentBuffer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterable

    from stepgraph_server.core.instants import Instant
    from stepgraph_server.storage.sqlite.readers import Readers
    from stepgraph_server.storage.sqlite.writer import Writer

DISCARDED_AT_ONCE: Final = 8
"""So many chunks are deleted in one transaction: a few milliseconds."""


class SqliteValues:
    """See Values."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def put(
        self,
        namespace: str,
        expected: value_pb2.StoredValue,
        chunks: AsyncIterable[bytes],
        *,
        create_time: Instant,
        max_bytes: int = MAX_VALUE_BYTES,
    ) -> value_pb2.StoredValue:
        """See Values."""
        buffer = ContentBuffer(expected, max_bytes)
        header = {
            "namespace": namespace,
            "size_bytes": expected.size_bytes,
            "media_type": expected.media_type,
            "form": expected.form,
            "create_time": create_time,
        }
        begun: list[int] = []

        def begin(connection: sqlite3.Connection) -> int:
            begun.append(connection.execute(QUERIES["begin_content"], header).fetchone()[0])
            return begun[0]

        try:
            content_key = await self._writer.run(begin)
        except asyncio.CancelledError:
            # What is in the writer's queue is done all the same, before this; the key is not known yet.
            self._discard(begun)
            raise
        try:
            place = 0
            async for piece in chunks:
                for chunk in buffer.add(piece):
                    await self._add_chunk(content_key, place, chunk)
                    place += 1
            if rest := buffer.rest():
                await self._add_chunk(content_key, place, rest)
            value = buffer.finish()
            is_kept = await self._writer.run(
                lambda connection: _complete(connection, namespace, value.digest, content_key)
            )
        except BaseException:
            # Not awaited: this may be a cancellation, and the caller must not wait for cleaning.
            self._discard(begun)
            raise
        if not is_kept:
            self._discard(begun)
        return value

    async def stat(self, namespace: str, digest: str) -> value_pb2.StoredValue | None:
        """See Values."""
        row = await self._readers.run(lambda connection: _find(connection, namespace, digest))
        if row is None:
            return None
        _, found_digest, size_bytes, media_type, form = row
        return value_pb2.StoredValue(
            digest=found_digest,
            size_bytes=size_bytes,
            media_type=media_type,
            # Protobuf enums are open: what was stored passes through.
            form=cast("value_pb2.ValueForm.ValueType", form),
        )

    async def read(self, namespace: str, digest: str, offset: int, max_bytes: int) -> bytes | None:
        """See Values. Returns bytes of one chunk at a time."""
        place, skip = divmod(offset, VALUE_CHUNK_BYTES)
        arguments = {
            "namespace": namespace,
            "digest": digest,
            "place": place,
            "skip": skip,
            "max_bytes": max_bytes,
        }
        row = await self._readers.run(
            lambda connection: connection.execute(QUERIES["read_chunk"], arguments).fetchone()
        )
        # No row: no such content. A row without bytes: the offset is behind the last chunk.
        return None if row is None else row[0] or b""

    async def _add_chunk(self, content_key: int, place: int, chunk: bytes) -> None:
        arguments = {"content_key": content_key, "place": place, "bytes": chunk}
        await self._writer.run(
            lambda connection: connection.execute(QUERIES["insert_chunk"], arguments)
        )

    def _discard(self, begun: list[int]) -> None:
        """Delete a content, if one was begun, in steps, each of which asks for the next."""

        def discard(connection: sqlite3.Connection) -> None:
            if begun and not discard_some(connection, begun[0]):
                self._writer.post(Job(discard))

        self._writer.post(Job(discard))


def discard_some(connection: sqlite3.Connection, content_key: int) -> bool:
    """Delete some chunks of a content that is not complete, or the content if none is left; return if it is gone.

    One that is complete is left alone: its last step may have been done although whoever asked for it was cancelled.
    """
    arguments = {"content_key": content_key, "limit": DISCARDED_AT_ONCE}
    if connection.execute(QUERIES["discard_chunks"], arguments).rowcount:
        return False
    connection.execute(QUERIES["discard_content"], arguments)
    return True


def discard_incomplete(connection: sqlite3.Connection) -> None:
    """Delete what was being written when the store ended. Nothing else may be writing."""
    for (content_key,) in connection.execute(QUERIES["incomplete_contents"]).fetchall():
        while not discard_some(connection, content_key):
            pass


def _complete(
    connection: sqlite3.Connection, namespace: str, digest: str, content_key: int
) -> bool:
    """Make a content visible, unless the same one was stored before; return if it was done."""
    if _find(connection, namespace, digest) is not None:
        return False
    connection.execute(QUERIES["complete_content"], {"content_key": content_key, "digest": digest})
    return True


def _find(
    connection: sqlite3.Connection, namespace: str, digest: str
) -> tuple[int, str, int, str, int] | None:
    arguments = {"namespace": namespace, "digest": digest}
    row: tuple[int, str, int, str, int] | None = connection.execute(
        QUERIES["find_content"], arguments
    ).fetchone()
    return row
