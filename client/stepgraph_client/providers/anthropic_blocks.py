"""Blocks of messages as Anthropic's messages API has them.

Rules: a block that the API has no form for is a failure with the block's path. Thoughts of other providers are left out, since the
API takes back only those that it has signed. A text that is empty is left out, since it takes none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from stepgraph_client.providers.contents import (
    Link,
    arguments_of,
    document_of,
    picture_of,
    text_of,
    unsupported,
)
from stepgraph_client.providers.echoes import unpacked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph.v1.conversation_pb2 import (
        ContentBlock,
        FileBlock,
        ImageBlock,
        Message,
        ThinkingBlock,
        ToolResultBlock,
    )
    from stepgraph_client.providers.anthropic_call_ids import CallIds
    from stepgraph_client.providers.tool_names import ToolNames
    from stepgraph_client.task_context import TaskContext

#: JSON, as the SDK takes it.
Block: TypeAlias = "dict[str, Any]"

#: The name under which `provider_data` is packed.
PROVIDER: Final = "anthropic"
PICTURES: Final = ("image/gif", "image/jpeg", "image/png", "image/webp")
PDF: Final = "application/pdf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What the provider calls the tools and the calls of a request."""

    tools: ToolNames
    calls: CallIds


async def of_message(message: Message, names: Names, ctx: TaskContext, path: str) -> list[Block]:
    """Return the blocks of a message; none if nothing of it can be sent, and nothing need be.

    Raises:
        Failed: CONTENT_UNSUPPORTED.
        Unreachable: A stored value can't be read.
    """
    return await _of_blocks(message.content, names, ctx, f"{path}.content")


async def _of_blocks(
    blocks: Sequence[ContentBlock], names: Names, ctx: TaskContext, path: str
) -> list[Block]:
    made = [
        await _of_block(block, names, ctx, f"{path}[{index}]") for index, block in enumerate(blocks)
    ]
    return [block for block in made if block is not None]


async def _of_block(block: ContentBlock, names: Names, ctx: TaskContext, path: str) -> Block | None:
    match block.WhichOneof("kind"):
        case "text":
            text = await text_of(block.text, ctx, path)
            return {"type": "text", "text": text} if text.strip() else None
        case "image":
            return await _picture(block.image, ctx, path)
        case "file":
            return await _document(block.file, ctx, path)
        case "tool_call":
            call = block.tool_call
            return {
                "type": "tool_use",
                "id": names.calls.of_call(call),
                "name": names.tools.out(call.name),
                "input": arguments_of(call),
            }
        case "tool_result":
            return await _result(block.tool_result, names, ctx, path)
        case "thinking":
            return _thoughts(block.thinking)
        case None:
            raise unsupported(path, "it is empty, or of a kind that is newer than this version")


async def _result(result: ToolResultBlock, names: Names, ctx: TaskContext, path: str) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": names.calls.of_result(result)}
    content = await _of_blocks(result.content, names, ctx, f"{path}.content")
    if content:
        block["content"] = content
    if result.is_error:
        block["is_error"] = True
    return block


def _thoughts(thinking: ThinkingBlock) -> Block | None:
    match unpacked(PROVIDER, thinking.provider_data):
        case {"redacted": str(data)}:
            return {"type": "redacted_thinking", "data": data}
        case {"signature": str(signature)}:
            return {"type": "thinking", "thinking": thinking.text, "signature": signature}
        case _:
            return None


async def _picture(image: ImageBlock, ctx: TaskContext, path: str) -> Block:
    found = await picture_of(image, ctx, path)
    if isinstance(found, Link):
        return {"type": "image", "source": {"type": "url", "url": found.uri}}
    if found.media_type not in PICTURES:
        raise unsupported(
            path, f"Anthropic's API takes {', '.join(PICTURES)}, not {found.media_type}"
        )
    source = {"type": "base64", "media_type": found.media_type, "data": found.base64}
    return {"type": "image", "source": source}


async def _document(file: FileBlock, ctx: TaskContext, path: str) -> Block:
    found = await document_of(file, ctx, path)
    if isinstance(found, Link):
        source = {"type": "url", "url": found.uri}
    elif found.media_type == PDF:
        source = {"type": "base64", "media_type": PDF, "data": found.base64}
    elif found.media_type.startswith("text/"):
        try:
            text = found.data.decode()
        except UnicodeDecodeError as error:
            raise unsupported(path, f"a document of {found.media_type} is UTF-8") from error
        source = {"type": "text", "media_type": "text/plain", "data": text}
    else:
        raise unsupported(path, f"Anthropic's API takes {PDF} and text/…, not {found.media_type}")
    block: Block = {"type": "document", "source": source}
    if file.name:
        block["title"] = file.name
    return block
