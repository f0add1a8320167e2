"""The events of Anthropic's messages API, collected into a reply.

Rules: events and deltas of a kind that is newer than this are passed over, as the API's makers ask; a block of one is not, since the
next request would have to send it back. What lacks a field that it was promised to have raises ValueError with its name.
Counts of tokens are cumulative: the last one that was said counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from stepgraph.v1.llm_pb2 import (
    LLM_STOP_REASON_END,
    LLM_STOP_REASON_MAX_TOKENS,
    LLM_STOP_REASON_OTHER,
    LLM_STOP_REASON_REFUSED,
    LLM_STOP_REASON_TOOL_CALLS,
    LlmStopReason,
    Usage,
)
from stepgraph_client.providers.anthropic_blocks import PROVIDER
from stepgraph_client.providers.contents import CONTENT_UNSUPPORTED
from stepgraph_client.providers.echoes import packed
from stepgraph_client.task_errors import Failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepgraph_client.providers.reply import Reply
    from stepgraph_client.providers.tool_names import ToolNames

_STOP_REASONS: Final[Mapping[str, LlmStopReason.ValueType]] = {
    "end_turn": LLM_STOP_REASON_END,
    "stop_sequence": LLM_STOP_REASON_END,
    "tool_use": LLM_STOP_REASON_TOOL_CALLS,
    "max_tokens": LLM_STOP_REASON_MAX_TOKENS,
    "model_context_window_exceeded": LLM_STOP_REASON_MAX_TOKENS,
    "refusal": LLM_STOP_REASON_REFUSED,
}


class ReplyEvents:
    """Takes the events of one reply.

    Attributes:
        has_ended: The last event was taken.
    """

    def __init__(self, reply: Reply, names: ToolNames) -> None:
        self._reply: Final = reply
        self._names: Final = names
        self._counts: Final[dict[str, int]] = {}
        self._has_stop_reason = False
        self.has_ended = False

    def take(self, event: object) -> None:
        """Take an event, as parsed from its JSON.

        Raises:
            ValueError: It is not what the API promises.
            Failed: REPLY_TOO_LARGE; or CONTENT_UNSUPPORTED, for a block that can't be kept.
        """
        if not isinstance(event, dict):
            message = f"an event is an object, not {type(event).__name__}"
            raise ValueError(message)  # noqa: TRY004  # what came is wrong, not who calls
        match event.get("type"):
            case "message_start":
                start = _object(event, "message")
                self._reply.model = _text(start, "model")
                self._count(_object(start, "usage"))
            case "content_block_start":
                self._open(_index(event), _object(event, "content_block"))
            case "content_block_delta":
                self._extend(_index(event), _object(event, "delta"))
            case "message_delta":
                self._stop(_object(event, "delta"))
                self._count(_object(event, "usage"))
            case "message_stop":
                self._end()
            case _:
                pass  # a ping, or newer than this

    def _open(self, index: int, block: Mapping[str, Any]) -> None:
        match _text(block, "type"):
            case "text":
                self._reply.text(_text(block, "text"), key=index)
            case "thinking":
                self._reply.thinking(_text(block, "thinking"), key=index)
            case "redacted_thinking":
                kept = packed(PROVIDER, {"redacted": _text(block, "data")})
                self._reply.thinking("", key=index, provider_data=kept)
            case "tool_use":
                name = self._names.back(_text(block, "name"))
                self._reply.call("", key=index, name=name, provider_id=_text(block, "id"))
            case kind:
                message = f"the reply has a block of the kind {kind!r}, which can't be kept"
                raise Failed(CONTENT_UNSUPPORTED, message, retryable=False, usage=self._reply.usage)

    def _extend(self, index: int, delta: Mapping[str, Any]) -> None:
        match _text(delta, "type"):
            case "text_delta":
                self._reply.text(_text(delta, "text"), key=index)
            case "thinking_delta":
                self._reply.thinking(_text(delta, "thinking"), key=index)
            case "signature_delta":
                # Whole, and once, at the end of its block.
                kept = packed(PROVIDER, {"signature": _text(delta, "signature")})
                self._reply.thinking("", key=index, provider_data=kept)
            case "input_json_delta":
                self._reply.call(_text(delta, "partial_json"), key=index)
            case _:
                pass  # citations, or newer than this

    def _stop(self, delta: Mapping[str, Any]) -> None:
        if delta.get("stop_reason") is not None:
            self._has_stop_reason = True
            reason = _text(delta, "stop_reason")
            self._reply.stop_reason = _STOP_REASONS.get(reason, LLM_STOP_REASON_OTHER)

    def _end(self) -> None:
        if not self._has_stop_reason:
            message = "it ended without a stop_reason"
            raise ValueError(message)
        self.has_ended = True

    def _count(self, usage: Mapping[str, Any]) -> None:
        details = usage.get("output_tokens_details")
        flat = {**usage, **details} if isinstance(details, dict) else usage
        self._counts.update(
            {name: count for name, count in flat.items() if type(count) is int and count >= 0}
        )
        count = self._counts.get
        cached = count("cache_read_input_tokens", 0)
        # Here, unlike at other providers, what is read from or written to the cache is no part of `input_tokens`.
        fresh = count("input_tokens", 0) + count("cache_creation_input_tokens", 0)
        self._reply.usage = Usage(
            input_tokens=fresh + cached,
            output_tokens=count("output_tokens", 0),
            cached_input_tokens=cached,
            reasoning_tokens=count("thinking_tokens", 0),
        )


def _object(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = given.get(name)
    return found if isinstance(found, dict) else _refuse(given, name, "an object")


def _text(given: Mapping[str, Any], name: str) -> str:
    found = given.get(name)
    return found if isinstance(found, str) else _refuse(given, name, "text")


def _index(event: Mapping[str, Any]) -> int:
    found = event.get("index")
    return found if isinstance(found, int) else _refuse(event, "index", "a number")


def _refuse(given: Mapping[str, Any], name: str, expected: str) -> NoReturn:
    message = f"in {given.get('type', 'an object')}, {name} is not {expected}"
    raise ValueError(message)
