"""Names of tools as a provider takes them.

Rules: tools may have dots in their names, which providers refuse. Such a name is written otherwise for the provider and read
back in the reply; every other name stays. Which is which depends on the request alone, so that each attempt sends the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stepgraph.v1.conversation_pb2 import ContentBlock
    from stepgraph.v1.llm_pb2 import LlmRequest

MAX_CHARACTERS: Final = 64
_PLAIN: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_CHARACTERS}}}")
_STRANGE: Final = re.compile("[^A-Za-z0-9_-]")


class ToolNames:
    """The names of one request, to the provider and back. What is not known stays as it is."""

    def __init__(self, names: Iterable[str]) -> None:
        """Begin with all names that the request has."""
        given = set(names)
        taken = {name for name in given if _PLAIN.fullmatch(name)}
        self._out: Final[dict[str, str]] = {}
        for name in sorted(given - taken):
            self._out[name] = _free(_STRANGE.sub("_", name)[:MAX_CHARACTERS], taken)
            taken.add(self._out[name])
        self._back: Final = {written: name for name, written in self._out.items()}

    @classmethod
    def of(cls, request: LlmRequest) -> ToolNames:
        """Return the names of a request: of its tools, and of the calls in its history."""
        return cls(_names(request))

    def out(self, name: str) -> str:
        """Return how the provider is told the name."""
        return self._out.get(name, name)

    def back(self, name: str) -> str:
        """Return the name that the provider was told so."""
        return self._back.get(name, name)


def _names(request: LlmRequest) -> Iterator[str]:
    yield from (tool.name for tool in request.tools)
    for message in request.messages:
        yield from (block.tool_call.name for block in message.content if _is_call(block))


def _is_call(block: ContentBlock) -> bool:
    return block.WhichOneof("kind") == "tool_call"


def _free(wished: str, taken: set[str]) -> str:
    written, count = wished or "_", 1
    while written in taken:
        count += 1
        mark = f"_{count}"
        written = wished[: MAX_CHARACTERS - len(mark)] + mark
    return written
