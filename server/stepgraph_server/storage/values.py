"""The port of stored values: large contents, once per namespace, by their digest."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, Protocol

from stepgraph.v1 import value_pb2
from stepgraph_server.storage.errors import ValueMismatch, ValueTooLarge

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterator

    from stepgraph_server.core.instants import Instant

VALUE_CHUNK_BYTES: Final = 1024 * 1024
"""Contents are kept in pieces of this size, so that reading a part never reads the whole."""

MAX_VALUE_BYTES: Final = 64 * 1024 * 1024
"""The largest content, unless the caller of `put` says otherwise."""


class Values(Protocol):
    """Stored values of all namespaces."""

    async def put(
        self,
        namespace: str,
        expected: value_pb2.StoredValue,
        chunks: AsyncIterable[bytes],
        *,
        create_time: Instant,
        max_bytes: int = MAX_VALUE_BYTES,
    ) -> value_pb2.StoredValue:
        """Store a content that comes in pieces of any size, and return the full reference to it.

        `expected.digest` may be empty: it is computed. Storing what exists is harmless. Nothing can be seen of it
        before this returns; then it is durable. If `chunks` raises or the caller is cancelled, nothing is stored.

        Raises:
            ValueMismatch: Digest or size are not what `expected` says.
            ValueTooLarge: There is more than `max_bytes`.
            JournalUnavailable: Nothing could be written.
        """
        ...

    async def stat(self, namespace: str, digest: str) -> value_pb2.StoredValue | None:
        """Return the reference to a content, with the form in which it was stored first; None if there is none."""
        ...

    async def read(self, namespace: str, digest: str, offset: int, max_bytes: int) -> bytes | None:
        """Return the next bytes from `offset`, up to `max_bytes`: empty at the end, None if there is no such value.

        May return less than there is; go on at the offset behind it.
        """
        ...


class ContentBuffer:
    """Takes a content in pieces of any size, gives it back in chunks of one size, and checks what it was.

    Feed it with `add`, which yields full chunks; then `finish`, and store what `rest` returns.
    """

    def __init__(self, expected: value_pb2.StoredValue, max_bytes: int) -> None:
        self._expected = expected
        self._max_bytes = max_bytes
        self._hash = hashlib.sha256()
        self._size = 0
        self._pending = bytearray()

    def add(self, piece: bytes) -> Iterator[bytes]:
        """Yield the chunks that became full. Use up the iterator before anything else.

        Raises:
            ValueTooLarge: There is more than the limit.
            ValueMismatch: There is more than the header says.
        """
        self._size += len(piece)
        if self._size > self._max_bytes:
            raise ValueTooLarge(self._max_bytes, max(self._size, self._expected.size_bytes))
        if self._size > self._expected.size_bytes:
            raise ValueMismatch(
                what="size",
                expected=str(self._expected.size_bytes),
                actual=f"at least {self._size}",
            )
        self._hash.update(piece)
        self._pending += piece
        while len(self._pending) >= VALUE_CHUNK_BYTES:
            chunk = bytes(self._pending[:VALUE_CHUNK_BYTES])
            del self._pending[:VALUE_CHUNK_BYTES]
            yield chunk

    def rest(self) -> bytes:
        """Return what is left at the end, less than a chunk; may be empty."""
        return bytes(self._pending)

    def finish(self) -> value_pb2.StoredValue:
        """Return the full reference.

        Raises:
            ValueMismatch: The content is not what the header says.
        """
        digest = f"sha256:{self._hash.hexdigest()}"
        if self._size != self._expected.size_bytes:
            raise ValueMismatch(
                what="size", expected=str(self._expected.size_bytes), actual=str(self._size)
            )
        if self._expected.digest and self._expected.digest != digest:
            raise ValueMismatch(what="digest", expected=self._expected.digest, actual=digest)
        return value_pb2.StoredValue(
            digest=digest,
            size_bytes=self._size,
            media_type=self._expected.media_type,
            form=self._expected.form,
        )
