"""What scripted models and tools say: texts, calls, failures, and all of it later.

    bench.model("m", replies=[calls(call("search", query="grpc")), Failed("RATE_LIMITED", "slow down"), "It is a protocol."])

Rules: a script is said from its beginning to its end, one line for each call. Who asks for more than it has is told so, and the run
fails with SCRIPT_ENDED instead of hanging or guessing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stepgraph.v1.conversation_pb2 import ContentBlock, Message, TextBlock, ToolCallBlock
from stepgraph_client.task_errors import Failed
from stepgraph_client.values import to_value

if TYPE_CHECKING:
    from stepgraph_client.durations import Span

SCRIPT_ENDED: Final = "SCRIPT_ENDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """Something that is said after a while, by the workbench's clock; made by `later`."""

    how_long: Span
    said: object


def later(how_long: Span, said: object = None) -> Later:
    """Say something after a while: `later("10m", "at last")`. No test waits for it: the clock jumps."""
    return Later(how_long=how_long, said=said)


def call(name: str, /, **arguments: object) -> ToolCallBlock:
    """Return a tool call for `calls`."""
    return ToolCallBlock(name=name, args=to_value(arguments).json)


def calls(*wanted: ToolCallBlock, text: str = "") -> Message:
    """Return a model's reply that asks for tools, with some text before them if there is any."""
    blocks = [ContentBlock(text=TextBlock(text=text))] if text else []
    return Message(content=[*blocks, *(ContentBlock(tool_call=each) for each in wanted)])


class Script:
    """What is said to one call after the other."""

    def __init__(self, subject: str, lines: Iterable[object] | Callable[..., object]) -> None:
        """`lines` is a list, or a function that is called for each."""
        self._subject: Final = subject
        self._say: Final = lines if callable(lines) else None
        self._lines: Final = [] if callable(lines) else list(lines)
        #: What it was asked, in order.
        self.asked: Final[list[object]] = []

    @property
    def left(self) -> int:
        """How many lines were not said."""
        return max(0, len(self._lines) - len(self.asked))

    async def say(self, asked: object, sleep: Callable[[Span], Awaitable[None]]) -> object:
        """Return what is said to the next call.

        Raises:
            Failed: SCRIPT_ENDED, or what the script says.
        """
        said = self._next(asked)
        if isinstance(said, Awaitable):
            said = await said
        while isinstance(said, Later):
            await sleep(said.how_long)
            said = said.said
        if isinstance(said, Exception):
            raise said
        return said

    def _next(self, asked: object) -> object:
        self.asked.append(asked)
        if self._say is not None:
            return self._say(asked)
        if len(self.asked) > len(self._lines):
            message = (
                f"the script of {self._subject} has {len(self._lines)} lines, and this is call {len(self.asked)}; give it more, or a "
                "function"
            )
            raise Failed(SCRIPT_ENDED, message, retryable=False)
        return self._lines[len(self.asked) - 1]
