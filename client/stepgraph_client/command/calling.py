"""From a command to a server and back: settings, the client, exceptions as exit codes.

Rules: the one place where exit codes are decided; every command ends through it. Nothing below prints a traceback for
what can be expected to go wrong.

| code | meaning |
|---|---|
| 0 | it was done; a watched run COMPLETED |
| 1 | a watched run FAILED |
| 2 | the command was typed wrongly, a setting is wrong, or a file is no graph |
| 3 | the server refused it: there is no such thing, not now, not allowed, not supported |
| 4 | the server can't be reached, or did not answer in time |
| 5 | a watched run was CANCELLED |
| 6 | the time that was given for watching is over; runs go on |
| 130 | Ctrl-C; runs go on |
| 141 | whoever read the output has gone away; runs go on |
| 143 | SIGTERM; runs go on |
"""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

import click

from stepgraph_client.calls import Patience
from stepgraph_client.client import Client
from stepgraph_client.command.advice import advice
from stepgraph_client.command.settings import Color
from stepgraph_client.connection import DEFAULT_SERVER
from stepgraph_client.errors import Refused, StepgraphError, Unreachable
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
    TIME_IS_UP = 6
    INTERRUPTED = 130
    READER_GONE = 141


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What all commands share: which server and namespace, how long an answer may take, and how things look.

    `timeout_s` is for all that a command asks, retries included; None leaves it to the client's patience with each call.
    `flags` are how these settings were typed; None if they were not, and then all that is needed to find the same server is said.
    """

    server: str = DEFAULT_SERVER
    namespace: str = "default"
    timeout_s: float | None = None
    color: Color = Color.AUTO
    flags: tuple[str, ...] | None = None

    @property
    def command(self) -> str:
        """How the command line is called with these settings, for what people are told to type."""
        if self.flags is not None:
            # What came from the environment or a file is there the next time as well.
            return shlex.join(["stepgraph", *self.flags])
        words = ["stepgraph"]
        if self.server != DEFAULT_SERVER:
            words += ["--server", self.server]
        if self.namespace != "default":
            words += ["--namespace", self.namespace]
        return shlex.join(words)

    def client(self) -> Client:
        """Return a client, to be used as a context manager."""
        patience = Patience()
        if self.timeout_s is not None:
            # A try that is longer would be cut off in its middle, and tell nobody why the others failed.
            patience = replace(patience, timeout_s=min(patience.timeout_s, self.timeout_s))
        return Client(self.server, namespace=self.namespace, patience=patience)


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
        async with settings.client() as client, asyncio.timeout(settings.timeout_s):
            return await work(client)

    try:
        return asyncio.run(with_client())
    except StepgraphError as error:
        raise as_command_error(error, settings.command) from error
    except TimeoutError as error:
        if settings.timeout_s is None:
            raise
        raise out_of_time(settings) from error
    except KeyboardInterrupt:
        click.echo("Stopped. What was asked for may have been done.", err=True)
        raise SystemExit(ExitCode.INTERRUPTED) from None


def out_of_time(settings: Settings) -> ServerAwayError:
    """Return the end of a command whose time was over before it was answered."""
    return ServerAwayError(
        f"the stepgraph server at {settings.server} did not answer within {settings.timeout_s:g} s. "
        f"Is it running, and is the address right? `{settings.command} doctor` looks closer; --timeout gives it more time."
    )


def as_command_error(error: StepgraphError, command: str = "stepgraph") -> CommandError:
    """Return the end of a command for an exception of the client. `command` is how the command line is called."""
    match error:
        case Unreachable():
            hint = f" `{command} doctor` looks closer."
            return ServerAwayError(f"{error}{hint}")
        case GraphFileError():
            return FileError(str(error))
        case Refused():
            hint = advice(error, command)
            return CommandError(f"{error}\n{hint}" if hint else str(error))
        case _:
            return CommandError(str(error))
