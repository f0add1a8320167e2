"""What is told of a run compares by its words and its tone."""

from __future__ import annotations

from stepgraph_client.lines import Line, Piece, Tone


def test_what_is_told_is_plain_unless_it_is_meant_otherwise() -> None:
    """A tone is said only where it matters, and is a part of what is told."""
    assert Line(text="x") == Line(text="x", tone=Tone.PLAIN) != Line(text="x", tone=Tone.BAD)
    assert Piece(stream="s", text="x").tone is Tone.PLAIN
