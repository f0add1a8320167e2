"""Ids of calls, as Anthropic's API takes them back in a history.

Rules: the id is the provider's own, where the API takes it and it stands for one call only: a conversation may have calls of other
providers, who write other ids, or one id twice. The others are made of the server's id, which is unique. Which is which depends
on the history up to the call alone, so what was sent once is sent the same again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepgraph.v1.conversation_pb2 import Message, ToolCallBlock, ToolResultBlock

_TAKEN: Final = re.compile(r"[A-Za-z0-9_-]+")
_STRANGE: Final = re.compile(r"[^A-Za-z0-9_-]")


class CallIds:
    """The ids of the calls of one request."""

    def __init__(self, messages: Iterable[Message]) -> None:
        """Begin with the whole history."""
        self._ids: Final[dict[str, str]] = {}
        self._used: Final[set[str]] = set()
        for message in messages:
            for block in message.content:
                if block.WhichOneof("kind") == "tool_call":
                    self._add(block.tool_call)

    def of_call(self, call: ToolCallBlock) -> str:
        """Return the id of a call of the history."""
        return self._ids[call.id]

    def of_result(self, result: ToolResultBlock) -> str:
        """Return the id of the call that a result is for."""
        known = self._ids.get(result.call_id)
        return known or _plain(result.provider_id or result.call_id)

    def _add(self, call: ToolCallBlock) -> None:
        wanted = call.provider_id
        if not _TAKEN.fullmatch(wanted) or wanted in self._used:
            wanted = _plain(call.id)
        free, count = wanted, 1
        while free in self._used:
            count += 1
            free = f"{wanted}_{count}"
        self._used.add(free)
        self._ids[call.id] = free


def _plain(text: str) -> str:
    return _STRANGE.sub("_", text) or "_"
