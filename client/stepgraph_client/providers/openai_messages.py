"""Messages as OpenAI's API has them.

Rules: a result of a tool can only be text there. Its pictures follow in a message of the user's, after the last result of the same
reply, since nothing may stand between them; the text says so. Ids of calls are the provider's own where it gave one, unchanged,
and else the server's, which are unique in the run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, TypeAlias

from stepgraph.v1.conversation_pb2 import ROLE_ASSISTANT, ROLE_SYSTEM, ROLE_TOOL, ROLE_USER
from stepgraph_client.providers.contents import (
    Link,
    arguments_of,
    document_of,
    object_in,
    picture_of,
    text_of,
    unsupported,
)
from stepgraph_client.providers.echoes import unpacked
from stepgraph_client.providers.openai_answers import PROVIDER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stepgraph.v1.conversation_pb2 import (
        ContentBlock,
        FileBlock,
        Message,
        ToolCallBlock,
        ToolResultBlock,
    )
    from stepgraph.v1.llm_pb2 import LlmRequest
    from stepgraph_client.providers.openai_dialect import Dialect
    from stepgraph_client.providers.tool_names import ToolNames
    from stepgraph_client.task_context import TaskContext

Entry: TypeAlias = dict[str, object]

_ROLES: Final[Mapping[int, str]] = {ROLE_SYSTEM: "system", ROLE_USER: "user"}

#: What tells a model that the result of its call is trouble: the API has no field for it.
ERROR_MARK: Final = "Error: "
PICTURE_MARK: Final = "[picture {number} of this result follows below]"


class Messages:
    """Writes the messages of one request."""

    def __init__(self, ctx: TaskContext, names: ToolNames, dialect: Dialect) -> None:
        self._ctx: Final = ctx
        self._names: Final = names
        self._dialect: Final = dialect

    async def of(self, request: LlmRequest) -> list[Entry]:
        """Return the messages, with the system prompt before them.

        Raises:
            Failed: CONTENT_UNSUPPORTED; a block has no form here.
            Unreachable: A stored value can't be read.
        """
        entries: list[Entry] = []
        if request.system_prompt:
            entries.append({"role": "system", "content": request.system_prompt})
        pictures: list[Entry] = []
        for index, message in enumerate(request.messages):
            if message.role != ROLE_TOOL:
                entries += _shown(pictures)
                pictures = []
            entries += await self._message(message, f"messages[{index}]", pictures)
        return [*entries, *_shown(pictures)]

    async def _message(self, message: Message, path: str, pictures: list[Entry]) -> list[Entry]:
        if message.role == ROLE_ASSISTANT:
            return [await self._assistant(message, path)]
        if message.role == ROLE_TOOL:
            return [
                await self._result(block, f"{path}.content[{index}]", pictures)
                for index, block in enumerate(message.content)
            ]
        role = _ROLES.get(message.role)
        if role is None:
            place = f"{path}.role"
            raise unsupported(place, f"the role {message.role} is not known to this version")
        return [{"role": role, "content": await self._content(message.content, path)}]

    async def _content(self, blocks: Sequence[ContentBlock], path: str) -> str | list[Entry]:
        """Return text as one text, since not every server takes more, and anything else as parts."""
        parts = [
            await self._part(block, f"{path}.content[{index}]")
            for index, block in enumerate(blocks)
        ]
        if all(part["type"] == "text" for part in parts):
            return "\n\n".join(str(part["text"]) for part in parts)
        return parts

    async def _part(self, block: ContentBlock, path: str) -> Entry:
        match block.WhichOneof("kind"):
            case "text":
                return _text(await text_of(block.text, self._ctx, path))
            case "image":
                found = await picture_of(block.image, self._ctx, path)
                url = found.uri if isinstance(found, Link) else found.data_url
                return {"type": "image_url", "image_url": {"url": url}}
            case "file":
                return await self._document(block.file, path)
            case "tool_call" | "tool_result" | "thinking" as kind:
                raise unsupported(
                    path, f"a block of kind {kind} can't stand in a message of this role"
                )
            case None:
                raise unsupported(path, "its kind is newer than this version")

    async def _document(self, block: FileBlock, path: str) -> Entry:
        found = await document_of(block, self._ctx, path)
        if isinstance(found, Link):
            why = "this API fetches no documents; give the content, or the text of it"
            raise unsupported(path, why)
        if found.media_type.startswith("text/") or found.media_type == "application/json":
            try:
                text = found.data.decode()
            except UnicodeDecodeError as error:
                raise unsupported(path, f"it is no {found.media_type} in UTF-8") from error
            return _text(f"{block.name}:\n{text}" if block.name else text)
        file = {"filename": block.name or "document", "file_data": found.data_url}
        return {"type": "file", "file": file}

    # ---- replies and results of tools ------------------------------------------------------------

    async def _assistant(self, message: Message, path: str) -> Entry:
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[Entry] = []
        for index, block in enumerate(message.content):
            match block.WhichOneof("kind"):
                case "text":
                    here = f"{path}.content[{index}]"
                    texts.append(await text_of(block.text, self._ctx, here))
                case "thinking":
                    thoughts.append(block.thinking.text)
                case "tool_call":
                    calls.append(self._call(block.tool_call))
                case kind:
                    what = f"of kind {kind}" if kind else "that is newer than this version"
                    here = f"{path}.content[{index}]"
                    raise unsupported(here, f"a block {what} can't stand in a reply of the model's")
        entry: Entry = {"role": "assistant", "content": "".join(texts)}
        if calls:
            entry |= {"content": "".join(texts) or None, "tool_calls": calls}
        if self._dialect.sends_thinking and any(thoughts):
            entry["reasoning_content"] = "".join(thoughts)
        return entry

    def _call(self, call: ToolCallBlock) -> Entry:
        # As the model wrote them, number by number, if they can be read.
        arguments = call.args or "{}"
        if object_in(arguments) is None:
            arguments = json.dumps(arguments_of(call), ensure_ascii=False)
        function = {"name": self._names.out(call.name), "arguments": arguments}
        echo = unpacked(PROVIDER, call.provider_data)
        return {
            **echo,
            "id": call.provider_id or call.id,
            "type": "function",
            "function": function,
        }

    async def _result(self, block: ContentBlock, path: str, pictures: list[Entry]) -> Entry:
        if block.WhichOneof("kind") != "tool_result":
            raise unsupported(path, "a message of tools has results only")
        result = block.tool_result
        text = await self._result_text(result, path, pictures)
        return {
            "role": "tool",
            "tool_call_id": result.provider_id or result.call_id,
            "content": ERROR_MARK + text if result.is_error else text,
        }

    async def _result_text(self, result: ToolResultBlock, path: str, pictures: list[Entry]) -> str:
        texts: list[str] = []
        for index, block in enumerate(result.content):
            part = await self._part(block, f"{path}.tool_result.content[{index}]")
            if part["type"] == "text":
                texts.append(str(part["text"]))
            else:
                pictures.append(part)
                texts.append(PICTURE_MARK.format(number=len(pictures)))
        return "\n".join(texts)


def _shown(pictures: Sequence[Entry]) -> Iterator[Entry]:
    if pictures:
        yield {"role": "user", "content": list(pictures)}


def _text(text: str) -> Entry:
    return {"type": "text", "text": text}
