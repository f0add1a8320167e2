"""From a command to a server and back: settings, the client, exceptions as exit codes.

Rules: the one place where exit codes are decided; every command ends through it. Nothing below prints a traceback for
what can be expected to go wrong.

| code | meaning |
|---|---|
| 0 | it was done; a watched run COMPLETED |
| 1 | a watched run FAILED |
| 2 | the command was typed wrongly, or a file is no graph |
| 3 | the server refused it |
| 4 | the server can't be reached |
| 5 | a watched run was CANCELLED |
| 130 | Ctrl-C; runs go on |
"""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

import click

from stepgraph_client.client import Client
from stepgraph_client.connection import DEFAULT_SERVER
from stepgraph_client.errors import StepgraphError, Unreachable
from stepgraph_client.files import GraphFileError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


class ExitCode(IntEnum):
    """How a command ended; see the table above."""

    OK = 0
    RUN_FAILED = 1
    USAGE = 2
    REFUSED = 3
    UNREACHABLE = 4
    RUN_CANCELLED = 5
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What all commands share: which server, and which namespace."""

    server: str = DEFAULT_SERVER
    namespace: str = "default"

    @property
    def command(self) -> str:
        """How the command line is called with these settings, for what people are told to type."""
        words = ["stepgraph"]
        if self.server != DEFAULT_SERVER:
            words += ["--server", self.server]
        if self.namespace != "default":
            words += ["--namespace", self.namespace]
        return shlex.join(words)

    def client(self) -> Client:
        """Return a client, to be used as a context manager."""
        return Client(self.server, namespace=self.namespace)


class CommandError(click.ClickException):
    """A command ends without having done what it was asked for. Expected; its message is all that is printed."""

    exit_code = ExitCode.REFUSED


class FileError(CommandError):
    """A file that was given is no graph."""

    exit_code = ExitCode.USAGE


class ServerAwayError(CommandError):
    """The server can't be reached."""

    exit_code = ExitCode.UNREACHABLE


def perform(settings: Settings, work: Callable[[Client], Awaitable[T]]) -> T:
    """Do something with a client.

    Raises:
        CommandError: it went wrong in a way that can be expected.
    """

    async def with_client() -> T:
        async with settings.client() as client:
            return await work(client)

    try:
        return asyncio.run(with_client())
    except StepgraphError as error:
        raise as_command_error(error) from error


def as_command_error(error: StepgraphError) -> CommandError:
    """Return the end of a command for an exception of the client."""
    match error:
        case Unreachable():
            return ServerAwayError(str(error))
        case GraphFileError():
            return FileError(str(error))
        case _:
            return CommandError(str(error))
