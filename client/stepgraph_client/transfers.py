"""Stored values: contents that are too large for a message, written and read in pieces.

Rules: a content is named by its digest, so writing it twice is harmless, and a read that was cut off goes on where it was.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from stepgraph.v1.value_pb2 import (
    VALUE_FORM_BLOB,
    VALUE_FORM_JSON,
    VALUE_FORM_TEXT,
    Blob,
    StoredValue,
    Value,
)
from stepgraph.v1.value_service_pb2 import ReadValueRequest, WriteValueRequest
from stepgraph_client.errors import StepgraphError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepgraph.v1.value_service_pb2_grpc import ValueServiceStub
    from stepgraph_client.calls import Caller

#: The largest value that goes into a message.
MAX_INLINE_BYTES = 256 * 1024
#: The largest piece of a stored value in one message.
CHUNK_BYTES = 1024 * 1024


class ValueDamaged(StepgraphError):
    """What was read is not what its digest says. Unexpected; read it again."""

    def __init__(self, digest: str, found: str) -> None:
        super().__init__(f"stored value {digest} came with the content of {found}; read it again")
        self.digest = digest
        self.found = found


def content_of(value: Value) -> tuple[bytes, StoredValue] | None:
    """Return the bytes of a value and what they would be stored as; None if it has none of its own."""
    match value.WhichOneof("kind"):
        case "text":
            return _content(value.text.encode(), StoredValue(form=VALUE_FORM_TEXT))
        case "json":
            return _content(value.json.encode(), StoredValue(form=VALUE_FORM_JSON))
        case "blob":
            blob = value.blob
            kind = blob.media_type or "application/octet-stream"
            return _content(blob.data, StoredValue(form=VALUE_FORM_BLOB, media_type=kind))
        case _:
            return None


def inline(stored: StoredValue, content: bytes) -> Value:
    """Return a stored value with its content inside.

    Raises:
        StepgraphError: this version does not know the form.
    """
    if stored.form == VALUE_FORM_TEXT:
        return Value(text=content.decode())
    if stored.form == VALUE_FORM_JSON:
        return Value(json=content.decode())
    if stored.form == VALUE_FORM_BLOB:
        return Value(blob=Blob(media_type=stored.media_type, data=content))
    message = f"stored value {stored.digest} has a form that this version does not know"
    raise StepgraphError(message)


async def write(caller: Caller, stub: ValueServiceStub, namespace: str, value: Value) -> Value:
    """Store the content of a value, and return the reference. What has no content comes back as it is.

    Raises:
        Refused: the server won't take it; TooMuch if it is larger than 64 MiB.
        Unreachable: the retries are used up.
    """
    content = content_of(value)
    if content is None:
        return value
    data, stored = content
    header = WriteValueRequest.Header(namespace=namespace, value=stored)

    async def attempt() -> Value:
        response = await stub.WriteValue(_pieces(header, data))
        return Value(stored=response.value)

    return await caller.retried(attempt)


async def read(
    caller: Caller, stub: ValueServiceStub, namespace: str, digest: str
) -> tuple[StoredValue, bytes]:
    """Return a stored value and its content.

    Raises:
        NotFound: there is no such value in the namespace.
        Unreachable: the retries are used up.
        ValueDamaged: the content is not that of the digest.
    """
    stored = StoredValue()
    content = bytearray()

    async def attempt() -> None:
        request = ReadValueRequest(namespace=namespace, digest=digest, offset_bytes=len(content))
        async for response in stub.ReadValue(request):
            if response.HasField("value"):
                stored.CopyFrom(response.value)
            content.extend(response.chunk)

    await caller.retried(attempt)
    found = _digest(bytes(content))
    if found != digest:
        raise ValueDamaged(digest, found)
    return stored, bytes(content)


def _content(data: bytes, stored: StoredValue) -> tuple[bytes, StoredValue]:
    stored.digest = _digest(data)
    stored.size_bytes = len(data)
    return data, stored


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _pieces(header: WriteValueRequest.Header, data: bytes) -> Iterator[WriteValueRequest]:
    yield WriteValueRequest(header=header)
    for start in range(0, len(data), CHUNK_BYTES):
        yield WriteValueRequest(chunk=data[start : start + CHUNK_BYTES])
