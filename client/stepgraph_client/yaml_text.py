"""Mappings, lists and scalars as YAML text.

The YAML library writes as well, and takes ten times as long: it has comments, anchors and styles to keep, of which a tree that was
just made has none. For a graph of thousands of nodes that is seconds.

Rules: blocks only, no flow. What could be read as anything but text is quoted, and what can't be printed is escaped; so
every text reads back as it was.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[str, Plain]"

#: A key that is longer is written with a mark of its own; YAML ends at 1,024.
_MAX_KEY_CHARACTERS = 500

_BARE = re.compile(r"[A-Za-z0-9_./(](?:.*[^ :])?")
#: What ends a bare text, or begins a comment in it.
_ENDS_BARE = re.compile(r": | #")
#: What readers of some version of YAML take for a number or a time.
_NUMBER_LIKE = re.compile(r"[0-9.][0-9a-f_xo.:+-]*|\.inf|\.nan", re.IGNORECASE)
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def yaml_text(tree: dict[str, Plain]) -> str:
    """Return a mapping as a YAML document."""
    if not tree:
        return "{}\n"
    return "\n".join(_entries(tree, "")) + "\n"


def _entries(tree: dict[str, Plain], pad: str) -> Iterator[str]:
    for key, value in tree.items():
        name = _scalar(key)
        if len(name) > _MAX_KEY_CHARACTERS:
            yield f"{pad}? {name}"
            name = ""
        yield from _after(f"{pad}{name}:", value, pad)


def _after(head: str, value: Plain, pad: str) -> Iterator[str]:
    """Yield the lines of a value behind a key."""
    inner = f"{pad}  "
    match value:
        case dict() if value:
            yield head
            yield from _entries(value, inner)
        case list() if value:
            yield head
            yield from _items(value, inner)
        case _:
            yield from _leaf(f"{head} ", value, inner)


def _items(items: list[Plain], pad: str) -> Iterator[str]:
    inner = f"{pad}  "
    for item in items:
        match item:
            case dict() if item:
                lines = _entries(item, inner)
            case list() if item:
                lines = _items(item, inner)
            case _:
                lines = _leaf(inner, item, inner)
        # The first line of an item stands behind its dash, where its indentation would be.
        yield f"{pad}- {next(lines)[len(inner) :]}"
        yield from lines


def _leaf(head: str, value: Plain, pad: str) -> Iterator[str]:
    """Yield the lines of what has nothing in it; text of several lines as a block, where it gives back every character."""
    if not isinstance(value, str) or not _is_block(value):
        yield head + _scalar(value)
        return
    lines = value.split("\n")
    kept = ""
    if lines[-1] != "":
        kept = "-"
    elif lines[-2] == "":
        kept = "+"
    yield f"{head}|{kept}"
    for line in lines if lines[-1] != "" else lines[:-1]:
        yield pad + line if line else ""


def _is_block(text: str) -> bool:
    lines = text.split("\n")
    # Indentation of the first line, blanks at the end of a line, and what can't be printed do not survive in a block.
    if len(lines) == 1 or not lines[0] or lines[0][0].isspace():
        return False
    return all(line == line.rstrip() and line.isprintable() for line in lines)


def _scalar(value: Plain) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float() if math.isnan(value):
            return ".nan"
        case float() if math.isinf(value):
            return ".inf" if value > 0 else "-.inf"
        case float():
            return repr(value)
        case str():
            return value if _is_bare(value) else _quoted(value)
        case _:
            return "{}" if isinstance(value, dict) else "[]"


def _is_bare(text: str) -> bool:
    return (
        _BARE.fullmatch(text) is not None
        and text.isprintable()
        and _ENDS_BARE.search(text) is None
        and text.lower() not in _WORDS
        and _NUMBER_LIKE.fullmatch(text) is None
    )


def _quoted(text: str) -> str:
    # Single quotes where nothing has to be escaped: expressions and templates are full of double ones.
    if text.isprintable() and '"' in text:
        return "'" + text.replace("'", "''") + "'"
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    # Not JSON's escapes: YAML has one for a character beyond 16 bits, and no pairs of halves of it.
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
