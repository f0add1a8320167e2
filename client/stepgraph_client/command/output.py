"""What commands print: tables and facts for people, JSON for programs.

Rules: JSON has the schema's names, and is one document (or one per line, where something is watched). Plain text has no
colour and no frames, so that it can be cut and searched.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
from google.protobuf.json_format import MessageToDict

from stepgraph_client.render import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.protobuf.message import Message


def plain(message: Message) -> dict[str, object]:
    """Return a message as the schema's JSON form, in its own names."""
    entries: dict[str, object] = MessageToDict(message, preserving_proto_field_name=True)
    return entries


def print_json(content: object) -> None:
    """Print one JSON document over several lines."""
    click.echo(json.dumps(content, indent=2, ensure_ascii=False))


def print_json_line(content: object) -> None:
    """Print one JSON document on one line. It goes out at once: whoever reads a watch waits for it."""
    click.echo(json.dumps(content, ensure_ascii=False))


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str) -> None:
    """Print rows in columns under a header, or what to say if there are none."""
    cells = [[visible(cell).replace("\n", " ") for cell in row] for row in rows]
    if not cells:
        click.echo(empty, err=True)
        return
    lines = [list(header), *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print names with their values, one a line; what is empty is left out."""
    shown = [(name, value) for name, value in facts if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        first, *rest = visible(value).splitlines()
        click.echo(f"{name.ljust(width)}  {first}")
        for line in rest:
            click.echo(f"{' ' * width}  {line}")
