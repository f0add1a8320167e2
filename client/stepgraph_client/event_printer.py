"""A run's events, written as they come.

Rules: what runs show is anybody's text, so nothing in it steers the terminal, and none of it is markup.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from stepgraph_client.folding import folded
from stepgraph_client.lines import Line, Piece, Tone
from stepgraph_client.render import Narrator

if TYPE_CHECKING:
    from typing import TextIO

    from stepgraph_client.watching import Event


class EventPrinter:
    """Writes a run's events as they come: in colour on a terminal, plain where it is piped.

    What was streamed without an end is ended before the next line. Nothing but `Console` is written to.
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        file: TextIO | None = None,
        command: str = "stepgraph",
    ) -> None:
        # Never wrapped or highlighted: commands are to be copied, and lines are to be searched.
        self._console = console or Console(
            file=file or sys.stdout, highlight=False, soft_wrap=True, emoji=False
        )
        self._narrator = Narrator(command)
        self._open = ""

    def print(self, event: Event) -> None:
        """Write what is to be said of an event."""
        for told in self._narrator.tell(event):
            match told:
                case Line():
                    self.end()
                    self._write(told.text, told.tone, end="\n")
                case Piece():
                    self._piece(told)

    def end(self) -> None:
        """End what was streamed, so that the next thing starts on a line of its own."""
        if self._open:
            self._write("", Tone.PLAIN, end="\n")
            self._open = ""

    def _piece(self, piece: Piece) -> None:
        if not piece.text:
            return
        if piece.stream != self._open:
            self.end()
            self._open = piece.stream
            self._write("  │ ", Tone.QUIET, end="")
        self._write(piece.text.replace("\n", "\n  │ "), piece.tone, end="")

    def _write(self, text: str, tone: Tone, end: str) -> None:
        # Text, not markup: what runs show is anybody's, and brackets in it are only brackets.
        shown = visible(text)
        if end and self._console.is_terminal:
            shown = "\n".join(folded(shown, self._console.width))
        self._console.print(Text(shown, style=tone.value), end=end)


def visible(text: str) -> str:
    """Return a text without what would steer the terminal: escapes and other control characters."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else f"\\x{ord(each):02x}" for each in text
    )
