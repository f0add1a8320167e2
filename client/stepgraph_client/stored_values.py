"""Large values of an executor: read when somebody looks, written when a result has them.

Rules: a content is named by its digest, so what was read or written once is neither read nor written again soon. What is
kept is bounded by bytes. Nothing of the content is ever logged.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import conversation_pb2, value_pb2
from stepgraph_client import transfers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.message import Message

    from stepgraph.v1.value_service_pb2_grpc import ValueServiceStub
    from stepgraph_client.calls import Caller

#: What was read is kept up to this size in all, so that a picture in a conversation crosses the wire once.
MAX_KEPT_BYTES: Final = 128 * 1024 * 1024
#: Digests that are known to be stored. The server keeps an unused value for a day; a process that runs longer writes again
#: what it has not written for this many other values.
MAX_KNOWN_DIGESTS: Final = 10_000


class StoredValues:
    """The stored values of one namespace."""

    def __init__(self, caller: Caller, stub: ValueServiceStub, namespace: str) -> None:
        self._caller: Final = caller
        self._stub: Final = stub
        self._namespace: Final = namespace
        self._contents: Final[OrderedDict[str, bytes]] = OrderedDict()
        self._kept_bytes = 0
        self._known: Final[OrderedDict[str, None]] = OrderedDict()

    async def content(self, stored: value_pb2.StoredValue) -> bytes:
        """Return the content of a stored value.

        Raises:
            NotFound: There is no such value in the namespace.
            Unreachable: The retries are used up.
            ValueDamaged: The content is not that of the digest.
        """
        kept = self._contents.get(stored.digest)
        if kept is not None:
            self._contents.move_to_end(stored.digest)
            return kept
        _, content = await transfers.read(self._caller, self._stub, self._namespace, stored.digest)
        self._keep(stored.digest, content)
        return content

    async def resolve(self, value: value_pb2.Value) -> value_pb2.Value:
        """Return a value with its content inside; what is not stored comes back as it is. Raises as `content`."""
        if value.WhichOneof("kind") != "stored":
            return value
        return transfers.inline(value.stored, await self.content(value.stored))

    async def externalize(self, message: Message, limit: int) -> None:
        """Store every value, text, picture and file in a message of ours that is above the limit, and refer to it.

        Raises:
            TooMuch: One is above what the server stores.
            Unreachable: The retries are used up.
        """
        for part in _large_parts(message, limit):
            match part:
                case value_pb2.Value():
                    part.stored.CopyFrom(await self._store(part))
                case conversation_pb2.TextBlock():
                    part.stored.CopyFrom(await self._store(value_pb2.Value(text=part.text)))
                case conversation_pb2.ImageBlock() | conversation_pb2.FileBlock():
                    part.stored.CopyFrom(await self._store(value_pb2.Value(blob=part.blob)))
                case _:
                    raise AssertionError(type(part))

    async def _store(self, value: value_pb2.Value) -> value_pb2.StoredValue:
        content = transfers.content_of(value)
        assert content is not None, "only what has content is large"
        data, stored = content
        if stored.digest in self._known:
            self._known.move_to_end(stored.digest)
            return stored
        written = await transfers.write(self._caller, self._stub, self._namespace, value)
        self._known[stored.digest] = None
        if len(self._known) > MAX_KNOWN_DIGESTS:
            self._known.popitem(last=False)
        # What a model or tool just made is what the next one is about to read.
        self._keep(stored.digest, data)
        return written.stored

    def _keep(self, digest: str, content: bytes) -> None:
        if digest in self._contents or len(content) > MAX_KEPT_BYTES // 2:
            return
        self._contents[digest] = content
        self._kept_bytes += len(content)
        while self._kept_bytes > MAX_KEPT_BYTES:
            _, dropped = self._contents.popitem(last=False)
            self._kept_bytes -= len(dropped)


def _large_parts(message: Message, limit: int) -> Iterator[Message]:
    """Yield the innermost messages that can be stored, and are too large not to be."""
    if message.ByteSize() <= limit:
        return
    match message:
        case value_pb2.Value():
            if message.WhichOneof("kind") in {"text", "json", "blob"}:
                yield message
            return
        case conversation_pb2.TextBlock():
            if len(message.text.encode()) > limit:
                yield message
            return
        case conversation_pb2.ImageBlock() | conversation_pb2.FileBlock():
            if len(message.blob.data) > limit:
                yield message
            return
        case _:
            for part in _submessages(message):
                yield from _large_parts(part, limit)


def _submessages(message: Message) -> Iterator[Message]:
    for descriptor, content in message.ListFields():
        kind = descriptor.message_type
        if kind is None:
            continue
        if not descriptor.is_repeated:
            yield content
        elif not kind.GetOptions().map_entry:
            yield from content
        elif kind.fields_by_name["value"].message_type is not None:
            yield from content.values()
