"""What the blocks of messages hold, wherever it is kept: text, pictures, documents, arguments of calls.

Rules: stored values are read here, by digest, and kept by the executor for a while. A block that can't be used is named by its
path in the request.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stepgraph.v1.value_pb2 import VALUE_FORM_BLOB
from stepgraph_client.errors import NotFound
from stepgraph_client.task_errors import Failed

if TYPE_CHECKING:
    from stepgraph.v1.conversation_pb2 import FileBlock, ImageBlock, TextBlock, ToolCallBlock
    from stepgraph.v1.value_pb2 import StoredValue
    from stepgraph_client.task_context import TaskContext

CONTENT_UNSUPPORTED: Final = "CONTENT_UNSUPPORTED"
UNKNOWN_MEDIA_TYPE: Final = "application/octet-stream"
#: How the arguments of a call are called that are no JSON object, and so can't be sent back as they were.
UNREADABLE_ARGUMENTS: Final = "unreadable_arguments"

#: How pictures begin, for those that come without a media type.
_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bytes:
    """Content that goes into the request."""

    media_type: str
    data: bytes

    @property
    def base64(self) -> str:
        """The content in Base64."""
        return base64.b64encode(self.data).decode("ascii")

    @property
    def data_url(self) -> str:
        """The content as a URL that has it inside."""
        return f"data:{self.media_type};base64,{self.base64}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Content that the provider fetches itself."""

    uri: str


async def text_of(block: TextBlock, ctx: TaskContext, path: str) -> str:
    """Return the text of a block.

    Raises:
        Failed: CONTENT_UNSUPPORTED; the stored value is gone, or is no text.
        Unreachable: The server can't be reached.
    """
    if block.WhichOneof("body") != "stored":
        return block.text
    data = await _stored(block.stored, ctx, path)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise unsupported(path, "the stored value is no text") from error


async def picture_of(block: ImageBlock, ctx: TaskContext, path: str) -> Bytes | Link:
    """Return a picture, or where it is. What has no media type is recognised by how it begins.

    Raises:
        Failed: CONTENT_UNSUPPORTED; there is none, or it is no picture.
        Unreachable: The server can't be reached.
    """
    found = await _source(block, ctx, path)
    if isinstance(found, Link):
        return found
    if found.media_type == UNKNOWN_MEDIA_TYPE:
        found = Bytes(media_type=_recognised(found.data), data=found.data)
    if not found.media_type.startswith("image/"):
        raise unsupported(path, f"a picture has a media type image/…, not {found.media_type}")
    return found


async def document_of(block: FileBlock, ctx: TaskContext, path: str) -> Bytes | Link:
    """Return a document, or where it is. Raises as `picture_of`."""
    return await _source(block, ctx, path)


def arguments_of(call: ToolCallBlock) -> dict[str, object]:
    """Return the arguments of a call in the history, for a provider that takes only JSON objects.

    A model that wrote something else was told so by the result of its call; here it reads under one name what it wrote.
    """
    found = object_in(call.args or "{}")
    return {UNREADABLE_ARGUMENTS: call.args} if found is None else found


def object_in(text: str) -> dict[str, object] | None:
    """Return the JSON object that a text is; None if it is none, NaN and infinities being no JSON."""
    try:
        found = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _refuse(name: str) -> object:
    raise ValueError(name)


def unsupported(path: str, why: str) -> Failed:
    """Return the failure for a block that can't be used; `path` is where it stands in the request."""
    return Failed(CONTENT_UNSUPPORTED, f"{path}: {why}", retryable=False, details={"field": path})


async def _source(block: ImageBlock | FileBlock, ctx: TaskContext, path: str) -> Bytes | Link:
    match block.WhichOneof("source"):
        case "blob":
            blob = block.blob
            return Bytes(media_type=blob.media_type or UNKNOWN_MEDIA_TYPE, data=blob.data)
        case "stored":
            data = await _stored(block.stored, ctx, path)
            return Bytes(media_type=_stored_type(block.stored), data=data)
        case "uri":
            return Link(uri=block.uri)
        case _:
            raise unsupported(path, "it has no content, or one that is newer than this version")


async def _stored(stored: StoredValue, ctx: TaskContext, path: str) -> bytes:
    try:
        return await ctx.content(stored)
    except NotFound as error:
        why = f"there is no stored value {stored.digest}; store it again"
        raise unsupported(path, why) from error


def _stored_type(stored: StoredValue) -> str:
    if stored.form == VALUE_FORM_BLOB:
        return stored.media_type or UNKNOWN_MEDIA_TYPE
    return "text/plain"


def _recognised(data: bytes) -> str:
    for beginning, media_type in _MAGIC:
        if data.startswith(beginning):
            return media_type
    is_webp = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    return "image/webp" if is_webp else UNKNOWN_MEDIA_TYPE
