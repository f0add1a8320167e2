"""Lines that are too long for a terminal.

Rules: pure. What is there to be copied survives: an id stays whole, and a command is one for a shell, however it is broken.
"""

from __future__ import annotations

import re

from rich.cells import cell_len

_WORDS = re.compile(r"'[^']*'|\S+")


def folded(text: str, width: int) -> list[str]:
    """Return a line as it fits a terminal: broken between words, what goes on is indented.

    A line that is a command is broken as a shell has it, so that it can be copied; what is quoted stays whole, and so does an
    id, even where it is too long.
    """
    if cell_len(text) <= width:
        return [text]
    indent = text[: len(text) - len(text.lstrip())]
    is_command = text.lstrip().startswith("stepgraph ")
    words = _WORDS.findall(text)
    lines, line = [], indent
    room = width - (2 if is_command else 0)
    for word in words:
        is_first = not line.strip()
        longer = f"{line}{word}" if is_first else f"{line} {word}"
        if cell_len(longer) <= room or is_first:
            line = longer
            continue
        lines.append(f"{line} \\" if is_command else line)
        line = f"{indent}    {word}"
        if cell_len(line) > room:
            # Without its indentation a long id may still fit.
            line = word
    return [*lines, line]
