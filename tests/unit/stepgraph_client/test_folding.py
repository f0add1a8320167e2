from __future__ import annotations

import pytest

from stepgraph_client.folding import folded


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("short", 10, ["short"]),
        ("  one two three four", 12, ["  one two", "      three", "      four"]),
        (
            "  stepgraph answer q --revise 'what should change'",
            28,
            [
                "  stepgraph answer q \\",
                "      --revise \\",
                "      'what should change'",
            ],
        ),
        ("of 01a22d92-39e4-75f6", 10, ["of", "01a22d92-39e4-75f6"]),
        ("  of 01a22d92-39e4-75f6", 20, ["  of", "01a22d92-39e4-75f6"]),
        ("検査検査 検査", 8, ["検査検査", "    検査"]),
    ],
)
def test_a_long_line_is_broken_between_words_and_a_command_as_a_shell_has_it(
    text, width, lines
) -> None:
    """An id stays whole, however narrow it is."""
    assert folded(text, width) == lines
