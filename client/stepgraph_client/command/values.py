"""`stepgraph values put|get`: contents that are too large for a message, and are stored once.

Rules: what is read goes out byte for byte, to a file or a pipe; a terminal is not given what would steer it.
"""

from __future__ import annotations

import mimetypes
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stepgraph.v1.value_pb2 import Blob, Value
from stepgraph_client.command.calling import CommandError, Settings, perform
from stepgraph_client.command.output import ITEM_FORMS, Output, output_option
from stepgraph_client.command.parameters import json_value
from stepgraph_client.command.tree import VerbGroup
from stepgraph_client.wording import size_text

if TYPE_CHECKING:
    from stepgraph_client.client import Client

_TEXT_SUFFIXES = {".txt", ".md", ".csv", ".log"}
#: What is read at most, so that a device without an end has one. A server's own limit is 64 MiB, unless it is set otherwise.
MAX_READ_BYTES = 512 * 1024 * 1024
_DIGEST_CHARACTERS = len("sha256:") + 64


@click.group("values", cls=VerbGroup)
def values_group() -> None:
    """Store and read large values.

    What nothing refers to is kept for a day.
    """


@values_group.command("put")
@click.argument("file", type=click.Path(allow_dash=True, dir_okay=False, path_type=Path))
@click.option(
    "--as",
    "kind",
    type=click.Choice(["text", "json", "bytes"]),
    help="What it is; else .json is JSON, .txt, .md, .csv and .log are text, and all else is bytes.",
)
@click.option(
    "--media-type", default="", help="Of bytes, such as image/png; else by the file's name."
)
@output_option(*ITEM_FORMS)
@click.pass_obj
def put(settings: Settings, file: Path, kind: str | None, media_type: str, *, out: Output) -> None:
    """Store the content of FILE (- is stdin), and print its digest. Storing what is there is harmless."""
    value = _value(file, kind or _kind_of(file), media_type)

    async def work(client: Client) -> Value:
        return await client.put_value(value)

    stored = perform(settings, work).stored
    if out.document(stored, ids=stored.digest):
        return
    click.echo(stored.digest)
    click.echo(f"read it: {settings.command} values get {stored.digest}", err=True)


def _kind_of(file: Path) -> str:
    suffix = file.suffix.lower()
    if suffix == ".json":
        return "json"
    return "text" if suffix in _TEXT_SUFFIXES else "bytes"


def _value(file: Path, kind: str, media_type: str) -> Value:
    try:
        if str(file) == "-":
            content = sys.stdin.buffer.read(MAX_READ_BYTES + 1)
        else:
            with file.open("rb") as opened:
                content = opened.read(MAX_READ_BYTES + 1)
    except OSError as error:
        message = f"{file} can't be read: {error.strerror or error}"
        raise click.UsageError(message) from error
    if len(content) > MAX_READ_BYTES:
        message = f"{file} has more than {size_text(MAX_READ_BYTES)}, far more than a server stores in one value"
        raise click.UsageError(message)
    if kind == "bytes":
        guessed = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        return Value(blob=Blob(media_type=media_type or guessed, data=content))
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        message = f"{file} is no text in UTF-8 (byte {error.start}); store it with --as bytes"
        raise click.UsageError(message) from error
    return Value(text=text) if kind == "text" else json_value(text)


@values_group.command("get")
@click.argument("digest")
@click.option(
    "--to",
    "target",
    type=click.Path(allow_dash=True, dir_okay=False, path_type=Path),
    help="Write it into this file. - is stdout, whatever the content is.",
)
@click.pass_obj
def get(settings: Settings, digest: str, target: Path | None) -> None:
    """Write the content of a stored value to stdout, or into a file."""
    if len(digest) != _DIGEST_CHARACTERS or not digest.startswith("sha256:"):
        message = f"{digest!r} is no digest: sha256: and 64 hexadecimal digits"
        raise click.UsageError(message)

    async def work(client: Client) -> bytes:
        return await client.read_value(digest)

    content = perform(settings, work)
    if target is not None and str(target) != "-":
        try:
            target.write_bytes(content)
        except OSError as error:
            message = f"{target} can't be written: {error.strerror or error}"
            raise CommandError(message) from error
        click.echo(f"{size_text(len(content))} in {target}", err=True)
        return
    if target is None and sys.stdout.isatty() and not _is_readable(content):
        message = f"these are {size_text(len(content))} that a terminal can't show; give --to FILE"
        raise CommandError(message)
    sys.stdout.buffer.write(content)
    if target is None and sys.stdout.isatty() and not content.endswith(b"\n"):
        click.echo()


def _is_readable(content: bytes) -> bool:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    return all(each.isprintable() or each in "\n\t\r" for each in text)
