"""A reply as it comes: each piece is shown if deltas are wanted, and the whole is an LlmResponse in the end.

Rules: pieces of one block have one key, by which a provider tells blocks apart; blocks stand in the order in which they began.
Ids of providers are kept as data and never decide anything;
what a provider wants back comes whole, and the last that comes counts. What a reply may grow to is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from stepgraph.v1.conversation_pb2 import (
    ROLE_ASSISTANT,
    ContentBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from stepgraph.v1.llm_pb2 import (
    LLM_STOP_REASON_END,
    LLM_STOP_REASON_MAX_TOKENS,
    LLM_STOP_REASON_OTHER,
    LLM_STOP_REASON_REFUSED,
    LLM_STOP_REASON_TOOL_CALLS,
    LlmResponse,
    LlmStopReason,
    Usage,
)
from stepgraph_client.providers.contents import object_in
from stepgraph_client.task_errors import Failed

if TYPE_CHECKING:
    from collections.abc import Hashable

    from stepgraph_client.task_context import TaskContext

#: What a model may write in one reply: far above what any writes today, and far below what hurts.
MAX_REPLY_BYTES: Final = 16 * 1024 * 1024
MAX_BLOCKS: Final = 4096

_Kind: TypeAlias = Literal["text", "thinking", "call"]
_CUT: Final = frozenset(
    {LLM_STOP_REASON_MAX_TOKENS, LLM_STOP_REASON_REFUSED, LLM_STOP_REASON_OTHER}
)


@dataclass(slots=True, kw_only=True)
class _Block:
    kind: _Kind
    pieces: list[str] = field(default_factory=list)
    provider_data: bytes = b""
    name: str = ""
    provider_id: str = ""
    call_index: int = 0

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Reply:
    """Collects one reply. A provider sets `stop_reason`, `usage` and `model` as it learns them.

    Attributes:
        stop_reason: Why the model stopped. END becomes TOOL_CALLS if there are calls: not every server tells them apart.
        usage: What is known of the cost so far; None if nothing is.
        model: The model that answered, as the provider names it.
    """

    def __init__(self, ctx: TaskContext, *, streaming: bool) -> None:
        """Begin; deltas are shown with `ctx` if they are wanted."""
        self._ctx: Final = ctx
        self._streaming: Final = streaming
        self._blocks: Final[dict[tuple[_Kind, Hashable], _Block]] = {}
        self._calls = 0
        self._bytes = 0
        self.stop_reason: LlmStopReason.ValueType = LLM_STOP_REASON_END
        self.usage: Usage | None = None
        self.model = ""

    @property
    def is_empty(self) -> bool:
        """Whether no piece has come yet."""
        return not self._blocks

    @property
    def size_bytes(self) -> int:
        """How much has come so far."""
        return self._bytes

    def alive(self) -> None:
        """Show that the provider is still at work, although nothing new has come."""
        if self._streaming:
            self._ctx.alive()

    def text(self, piece: str, *, key: Hashable = None, provider_data: bytes = b"") -> None:
        """Add a piece of text. Raises as `call`."""
        block = self._block("text", key, piece)
        block.provider_data = provider_data or block.provider_data
        if piece and self._streaming:
            self._ctx.text_delta(piece)

    def thinking(self, piece: str, *, key: Hashable = None, provider_data: bytes = b"") -> None:
        """Add a piece of thought, or what the provider wants back with it. Raises as `call`."""
        block = self._block("thinking", key, piece)
        block.provider_data = provider_data or block.provider_data
        if piece and self._streaming:
            self._ctx.thinking_delta(piece)

    def call(
        self,
        args: str,
        *,
        key: Hashable,
        name: str = "",
        provider_id: str = "",
        provider_data: bytes = b"",
    ) -> None:
        """Add a piece of a call's arguments. Its name and id may come with any piece; the first that says one counts.

        Raises:
            Failed: REPLY_TOO_LARGE.
        """
        block = self._block("call", key, args)
        is_named_now = bool(name) and not block.name
        block.name = block.name or name
        block.provider_id = block.provider_id or provider_id
        block.provider_data = provider_data or block.provider_data
        if self._streaming and (args or is_named_now):
            shown_name = name if is_named_now else ""
            self._ctx.tool_args_delta(block.call_index, args, tool_name=shown_name)

    def response(self) -> LlmResponse:
        """Return the whole reply.

        Where the model was cut off, a call whose arguments are not whole is left out: nobody wanted that call.

        Raises:
            ValueError: It is no reply; the message says why. A call without a name.
        """
        blocks = [each for each in self._blocks.values() if not self._is_stump(each)]
        nameless = [each for each in blocks if each.kind == "call" and not each.name]
        if nameless:
            message = f"call {nameless[0].call_index} names no tool"
            raise ValueError(message)
        stop_reason = self.stop_reason
        if stop_reason == LLM_STOP_REASON_END and any(each.kind == "call" for each in blocks):
            stop_reason = LLM_STOP_REASON_TOOL_CALLS
        return LlmResponse(
            message=Message(role=ROLE_ASSISTANT, content=[_content(each) for each in blocks]),
            stop_reason=stop_reason,
            usage=self.usage,
            model=self.model,
        )

    def _is_stump(self, block: _Block) -> bool:
        if block.kind != "call":
            return not block.pieces and not block.provider_data
        return self.stop_reason in _CUT and object_in(block.text) is None

    def _block(self, kind: _Kind, key: Hashable, piece: str) -> _Block:
        self._bytes += len(piece.encode("utf-8", "replace"))
        block = self._blocks.get((kind, key))
        if block is None:
            block = self._blocks[kind, key] = _Block(kind=kind)
            if kind == "call":
                block.call_index = self._calls
                self._calls += 1
        if self._bytes > MAX_REPLY_BYTES or len(self._blocks) > MAX_BLOCKS:
            message = (
                f"the reply has more than {MAX_REPLY_BYTES} bytes or {MAX_BLOCKS} blocks; "
                "set `max_tokens`"
            )
            raise Failed("REPLY_TOO_LARGE", message, category="limit", usage=self.usage)
        if piece:
            block.pieces.append(piece)
        return block


def _content(block: _Block) -> ContentBlock:
    match block.kind:
        case "text":
            text = TextBlock(text=block.text, provider_data=block.provider_data)
            return ContentBlock(text=text)
        case "thinking":
            thinking = ThinkingBlock(text=block.text, provider_data=block.provider_data)
            return ContentBlock(thinking=thinking)
        case "call":
            call = ToolCallBlock(
                name=block.name,
                args=block.text,
                provider_id=block.provider_id,
                provider_data=block.provider_data,
            )
            return ContentBlock(tool_call=call)
