"""The code blocks of a page: where each stands, what it is written in, and what is to be done with it.

Rules: every fence is understood or refused; a block that is overlooked would be a block that nobody runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+) -->\n\n?)?"
    r"^(?P<indent> *)```(?P<language>[\w+-]*)(?: (?P<word>[\w./-]+))? *\n(?P<text>.*?)^ *``` *$",
    re.MULTILINE | re.DOTALL,
)
_MARK = re.compile(r"^<!-- not run\b", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block. `reason` says why it is not run; empty if it is."""

    page: Path
    line: int
    language: str
    word: str
    text: str
    reason: str = ""

    @property
    def place(self) -> str:
        """Where it stands, as editors take it."""
        return f"{self.page}:{self.line}"


class PageError(Exception):
    """A page has something that looks like a block and is none."""


def blocks(page: Path, text: str) -> Iterator[Block]:
    """Yield the blocks of a page in their order.

    Raises:
        PageError: A fence, or a mark that a block is not run, was not understood.
    """
    found = list(_FENCE.finditer(text))
    fences = len(re.findall(r"^ *```", text, re.MULTILINE))
    if fences != 2 * len(found):
        message = f"{page}: {fences} fences make no {len(found)} blocks; one is malformed"
        raise PageError(message)
    marks = len(_MARK.findall(text))
    if marks != sum(bool(each["reason"]) for each in found):
        message = (
            f"{page}: `<!-- not run: reason -->` stands directly before a block, with a reason"
        )
        raise PageError(message)
    for each in found:
        yield Block(
            page=page,
            line=text.count("\n", 0, each.start("language")) + 1,
            language=each["language"],
            word=each["word"] or "",
            text=re.sub(rf"^{each['indent']}", "", each["text"], flags=re.MULTILINE),
            reason=each["reason"] or "",
        )
