"""Whole lines of what streams in pieces, several streams at a time.

Rules: pure. A line goes out when it is whole, or when somebody asks for the rest; one that never ends goes out in pieces of a bounded length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph_client.lines import Line, Piece

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: A line that is streamed without an end is let go in pieces of this length.
MAX_OPEN_CHARACTERS = 4_000


class Piecing:
    """The streams of one run. `open` is what is not a whole line yet, by stream, oldest first."""

    def __init__(self) -> None:
        self._open: dict[str, Piece] = {}

    @property
    def open(self) -> Sequence[Piece]:
        """What is not a whole line yet."""
        return list(self._open.values())

    def add(self, piece: Piece) -> Iterator[Line]:
        """Take a piece, and yield the lines that it makes whole."""
        before = self._open.pop(piece.stream, None)
        *whole, rest = ((before.text if before else "") + piece.text).split("\n")
        if len(rest) > MAX_OPEN_CHARACTERS:
            whole, rest = [*whole, rest], ""
        if rest:
            self._open[piece.stream] = Piece(stream=piece.stream, text=rest, tone=piece.tone)
        for text in whole:
            yield _line(Piece(stream=piece.stream, text=text, tone=piece.tone))

    def end(self) -> Iterator[Line]:
        """Let go of what there is, because something else follows."""
        pieces = self.open
        self._open.clear()
        yield from map(_line, pieces)


def _line(piece: Piece) -> Line:
    return Line(text=f"  │ {piece.text}".rstrip(), tone=piece.tone)
