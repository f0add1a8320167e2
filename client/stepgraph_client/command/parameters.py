"""Parameters that several commands take: pairs, values, spans, graphs.

Rules: what is typed is checked before anything is sent, and an error says what it should look like. Readers are plain
functions, to be used as `type=` of an option.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stepgraph.v1.value_pb2 import Value
from stepgraph_client import answers
from stepgraph_client.command.calling import as_command_error
from stepgraph_client.documents import DocumentError, read_document
from stepgraph_client.durations import DurationTextError, to_duration
from stepgraph_client.files import GraphFileError, SourceMap, load_graph
from stepgraph_client.requests import run_status

if TYPE_CHECKING:
    from stepgraph.v1.graph_pb2 import StateGraph
    from stepgraph.v1.interrupt_pb2 import InterruptAnswer

_SUFFIXES = {".yaml", ".yml", ".json"}
GRPC_SCHEMES = {"dns", "ipv4", "ipv6", "unix", "unix-abstract", "vsock", "xds"}
_MAX_PORT = 65_535

# What fits into the fields of the schema. A range makes click say what was expected, and of which option.
EVENT = click.IntRange(1, 2**32 - 1)
AFTER = click.IntRange(0, 2**32 - 1)
SUPERSTEPS = click.IntRange(1, 2**32 - 1)
TOKENS = click.IntRange(0, 2**63 - 1)


def server_address(text: str) -> str:
    """Read where a server is: `HOST:PORT`, or a name of gRPC's own such as `unix:/run/stepgraph.sock` or `dns:///host:7233`."""
    if text.partition(":")[0] in GRPC_SCHEMES:
        return text
    host, _, port = text.rpartition(":")
    # gRPC would add port 443, or take a port modulo 65,536, and then ask somebody else.
    is_port = port.isascii() and port.isdigit() and 0 < int(port[:6]) <= _MAX_PORT
    is_host = bool(host) and "/" not in host and (":" not in host or host.startswith("["))
    if not is_port or not is_host:
        message = f"{text!r} is not HOST:PORT, such as 127.0.0.1:7233"
        raise click.BadParameter(message)
    return text


def pair(text: str) -> tuple[str, str]:
    """Read `NAME=VALUE`, both texts."""
    name, equals, rest = text.partition("=")
    if not equals or not name:
        message = f"{text!r} is not NAME=VALUE, such as team=search"
        raise click.BadParameter(message)
    return name, rest


def variable(text: str) -> tuple[str, Value]:
    """Read `NAME=TEXT`, or `NAME:=JSON` for a number, a list, an object, true, false or null."""
    name, equals, rest = text.partition("=")
    if not equals or not name.removesuffix(":"):
        message = f"{text!r} is not NAME=TEXT or NAME:=JSON, such as city=Oslo or days:=3"
        raise click.BadParameter(message)
    if name.endswith(":"):
        return name.removesuffix(":"), json_value(rest)
    return name, Value(text=rest)


def json_value(text: str) -> Value:
    """Read JSON text as a value, just as it was typed."""
    try:
        read_document(text, is_json=True)
    except DocumentError as error:
        message = f"{text!r} is not JSON: {error}"
        raise click.BadParameter(message) from error
    return Value(json=text)


def status_names(
    _context: click.Context, _parameter: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Check names of statuses; a callback of an option."""
    for name in names:
        try:
            run_status(name)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
    return names


def reply_to(text: str) -> InterruptAnswer:
    """Read an answer as one word: `proceed`, `revise:TEXT`, `choose:ID`, `abort:TEXT`, `reply:TEXT`, `reply-json:JSON` or `failed:CODE`."""
    kind, colon, rest = text.partition(":")
    match kind, bool(colon):
        case "proceed", False:
            return answers.proceed()
        case "revise", True:
            return answers.revise(rest)
        case "choose", True:
            return answers.choose(rest)
        case "abort", _:
            return answers.abort(rest)
        case "reply", True:
            return answers.reply(rest)
        case "reply-json", True:
            return answers.reply(json_value(rest))
        case "failed", True:
            return answers.failed(rest)
        case _:
            message = (
                f"{text!r} is no answer: write proceed, revise:TEXT, choose:ID, abort:TEXT, "
                "reply:TEXT, reply-json:JSON or failed:CODE"
            )
            raise click.UsageError(message)


def span(text: str) -> str:
    """Read a length of time, such as 30s or 1h30m."""
    try:
        to_duration(text)
    except DurationTextError as error:
        raise click.BadParameter(str(error)) from error
    return text


def seconds(text: str) -> float:
    """Read a length of time as seconds. Not 0: nothing would be waited for."""
    length = to_duration(span(text)).ToTimedelta().total_seconds()
    if not length:
        message = f"{text!r} is no time at all; write one such as 30s"
        raise click.BadParameter(message)
    return length


def moment(text: str) -> datetime:
    """Read a point in time: "2026-01-31", "2026-01-31T12:00:05Z", "2026-01-31 12:00", or how long ago, such as "2h".

    One without a zone is in UTC, as all times are shown.
    """
    try:
        ago = to_duration(text).ToTimedelta()
    except DurationTextError:
        pass
    else:
        return datetime.now(UTC) - ago  # noqa: TID251  (what "ago" means to whoever types it)
    try:
        point = datetime.fromisoformat(text)
    except ValueError:
        message = f"{text!r} is no point in time, such as 2026-01-31, 2026-01-31T12:00:05Z, or 2h for two hours ago"
        raise click.BadParameter(message) from None
    return point if point.tzinfo is not None else point.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenGraph:
    """A graph as it was named on the command line: a file that was read, or a reference."""

    reference: str
    definition: StateGraph | None = None
    source: SourceMap | None = None


def given_graph(name: str) -> GivenGraph:
    """Return the graph that a command was given: the file, if the name is one, else a reference.

    Raises:
        CommandError: the file is no graph.
    """
    path = Path(name)
    # No name of a graph has a slash or begins with a dot.
    looks_like_a_file = path.suffix.lower() in _SUFFIXES or "/" in name or name.startswith(".")
    if looks_like_a_file or path.is_file():
        try:
            loaded = load_graph(path)
        except GraphFileError as error:
            raise as_command_error(error) from error
        return GivenGraph(reference=name, definition=loaded.graph, source=loaded.source)
    return GivenGraph(reference=name)


def reference(name: str) -> str:
    """Read a reference to a registered graph, where a file is of no use."""
    path = Path(name)
    # A graph may have the name of a file; only what is there and looks like a graph's file is meant as one.
    if path.suffix.lower() in _SUFFIXES and path.is_file():
        message = (
            f"{name!r} is a file, and this takes a registered graph: name, name@3 or sha256:…; "
            f"`stepgraph graphs register {name}` registers it"
        )
        raise click.BadParameter(message)
    return name
