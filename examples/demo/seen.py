"""What the rule planner has seen: the question, and the results of the tools that it has called so far.

A planner is asked again after every turn of tools, with the whole conversation. Ours keeps nothing in between: it runs its
plan from the top and asks `Seen` for results. What is not there yet becomes the calls of this turn. So a planner that was
restarted, or another copy of it, goes on where the last one stopped.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from stepgraph.v1.conversation_pb2 import ROLE_USER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stepgraph.v1.conversation_pb2 import ContentBlock, Message, ToolResultBlock

M = TypeVar("M", bound=BaseModel)


class Seen:
    """The conversation since the last question, and the calls that are still to be made."""

    def __init__(self, messages: Sequence[Message], tools: Sequence[str]) -> None:
        self.question = ""
        self.wanted: list[tuple[str, str]] = []
        self.troubles: list[str] = []
        self.calls_made = 0
        self._tools = frozenset(tools)
        self._results: dict[tuple[str, str], ToolResultBlock] = {}
        self._read(messages)

    def _read(self, messages: Sequence[Message]) -> None:
        calls: dict[str, tuple[str, str]] = {}
        for message in messages:
            # A message that a node wrote is no question of a person.
            if message.role == ROLE_USER and "node" not in message.metadata:
                self.question = text_of(message.content)
                calls.clear()
                self._results.clear()
            for block in message.content:
                if block.HasField("tool_call"):
                    calls[block.tool_call.id] = (block.tool_call.name, _same(block.tool_call.args))
                elif block.HasField("tool_result") and block.tool_result.call_id in calls:
                    self._results[calls[block.tool_result.call_id]] = block.tool_result
        self.calls_made = len(calls)

    def ask(self, tool: str, model: type[M], **args: object) -> M | None:
        """Return what a tool gave for these arguments; None if it is still to be asked, or had trouble."""
        if tool not in self._tools:
            self._trouble(f"I was not offered the tool {tool}.")
            return None
        call = self._call(tool, args)
        result = self._results.get(call)
        if result is None:
            self.want(tool, **args)
            return None
        text = text_of(result.content)
        if result.is_error:
            self._trouble(f"{tool}: {text}")
            return None
        try:
            return model.model_validate_json(text)
        except ValidationError:
            self._trouble(f"{tool} gave something that I can't read: {text[:80]}")
            return None

    def want(self, tool: str, **args: object) -> None:
        """Call a tool in this turn, whatever was called before."""
        call = self._call(tool, args)
        if call not in self.wanted:
            self.wanted.append(call)

    @staticmethod
    def _call(tool: str, args: Mapping[str, object]) -> tuple[str, str]:
        return tool, json.dumps(args, sort_keys=True)

    @property
    def is_waiting(self) -> bool:
        """Whether the plan can't go on before some tools have answered."""
        return bool(self.wanted)

    def _trouble(self, text: str) -> None:
        if text not in self.troubles:
            self.troubles.append(text)


def _same(args: str) -> str:
    """Return arguments in the form in which `ask` writes them."""
    try:
        return json.dumps(json.loads(args or "{}"), sort_keys=True)
    except ValueError:
        return args


def text_of(content: Sequence[ContentBlock]) -> str:
    """Return the text of a message."""
    return "".join(_texts(content))


def _texts(content: Sequence[ContentBlock]) -> Iterator[str]:
    for block in content:
        if block.HasField("text"):
            yield block.text.text
