from __future__ import annotations

from stepgraph_client.command.piecing import MAX_OPEN_CHARACTERS, Piecing
from stepgraph_client.lines import Piece, Tone


def texts(lines) -> list[str]:
    return [each.text for each in lines]


def test_a_line_goes_out_when_it_is_whole() -> None:
    pieces = Piecing()
    assert texts(pieces.add(Piece(stream="a", text="on"))) == []
    assert texts(pieces.add(Piece(stream="a", text="e\ntwo\nth"))) == ["  │ one", "  │ two"]
    assert [each.text for each in pieces.open] == ["th"]
    assert texts(pieces.end()) == ["  │ th"]
    assert texts(pieces.end()) == []


def test_streams_do_not_mix_and_keep_their_tone() -> None:
    pieces = Piecing()
    for stream, text, tone in (
        ("a", "x", Tone.PLAIN),
        ("b", "y", Tone.QUIET),
        ("a", "z", Tone.PLAIN),
    ):
        assert texts(pieces.add(Piece(stream=stream, text=text, tone=tone))) == []
    assert sorted((each.text, each.tone) for each in pieces.end()) == [
        ("  │ xz", Tone.PLAIN),
        ("  │ y", Tone.QUIET),
    ]


def test_a_line_without_an_end_is_let_go_in_pieces() -> None:
    pieces = Piecing()
    (line,) = pieces.add(Piece(stream="a", text="x" * (MAX_OPEN_CHARACTERS + 1)))
    assert len(line.text) > MAX_OPEN_CHARACTERS
    assert pieces.open == []


def test_an_empty_line_is_a_line() -> None:
    assert texts(Piecing().add(Piece(stream="a", text="\n"))) == ["  │"]
