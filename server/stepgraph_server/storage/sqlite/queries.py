"""The statements of queries.sql, by name.

Rules: SQL stands in .sql files, where editors and people read it as SQL. Only lists with optional conditions are put together
in code, from constants; values are always bound.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MARK = "-- name: "


def parse(text: str) -> Mapping[str, str]:
    """Return the statements of a file by the names that stand above them.

    Raises:
        ValueError: Two have one name.
    """
    found: dict[str, str] = {}
    for section in text.split(f"\n{_MARK}")[1:]:
        name, _, body = section.partition("\n")
        if name in found:
            message = f"two statements are named {name}"
            raise ValueError(message)
        found[name] = "\n".join(_without_comments(body)).strip().rstrip(";")
    return found


def _without_comments(body: str) -> Iterator[str]:
    """Leave out whole-line comments: those at the end belong to the next statement."""
    return (line for line in body.splitlines() if not line.startswith("--"))


QUERIES: Mapping[str, str] = parse(
    files("stepgraph_server.storage.sqlite").joinpath("queries.sql").read_text(encoding="utf-8")
)
