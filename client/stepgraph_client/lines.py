"""What is told of a run: lines and pieces of text, and how they are meant.

Rules: only words and their tone. How a tone looks is for whoever writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


class Tone(Enum):
    """How a line is meant; a terminal shows it as a colour."""

    PLAIN = ""
    HEADING = "bold"
    QUIET = "dim"
    GOOD = "green"
    WARNING = "yellow"
    BAD = "red"
    QUESTION = "bold magenta"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of its own."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A piece of text that goes on where the last piece of the same `stream` ended."""

    stream: str
    text: str
    tone: Tone = Tone.PLAIN


Telling: TypeAlias = Line | Piece
