from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import grpc
import pytest

from stepgraph_client.command.calling import (
    CommandError,
    ExitCode,
    FileError,
    ServerAwayError,
    Settings,
    as_command_error,
    perform,
)
from stepgraph_client.errors import NotFound, StepgraphError
from stepgraph_client.files import GraphFileError
from tests.support.refusals import Refusal

if TYPE_CHECKING:
    from stepgraph_client.client import Client


def test_what_people_are_told_to_type_reaches_the_same_server() -> None:
    assert Settings().command == "stepgraph"
    settings = Settings(server="here:1", namespace="my team")
    assert settings.command == "stepgraph --server here:1 --namespace 'my team'"


def test_work_is_done_with_a_client_of_the_settings(server) -> None:
    settings = Settings(server=server.address, namespace="team")

    async def work(client: Client) -> str:
        return client.namespace

    assert perform(settings, work) == "team"


def test_a_refusal_ends_the_command(server) -> None:
    async def work(client: Client) -> None:
        await client.get_run("nope")

    with pytest.raises(CommandError, match="there is no run nope") as caught:
        perform(Settings(server=server.address), work)
    assert caught.value.exit_code == ExitCode.REFUSED
    assert isinstance(caught.value.__cause__, NotFound)


def test_each_kind_of_trouble_has_its_exit_code() -> None:
    assert as_command_error(GraphFileError([])).exit_code == ExitCode.USAGE == 2
    assert as_command_error(StepgraphError("x")).exit_code == ExitCode.REFUSED == 3
    assert (FileError("x").exit_code, ServerAwayError("x").exit_code) == (2, 4)


def test_a_server_that_is_away_ends_with_4(run) -> None:
    ended = run("executors", address="127.0.0.1:1")
    assert ended.code == 4
    assert "can't reach the stepgraph server at 127.0.0.1:1" in ended.err
    assert "stepgraph serve" in ended.err
    assert "`stepgraph --server 127.0.0.1:1 doctor` looks closer" in ended.err


def test_a_command_ends_when_its_time_is_up(run) -> None:
    """Although whoever listens there never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        ended = run("executors", "--timeout", "200ms", address=address)
    assert ended.code == 4
    assert "--timeout gives it more time" in ended.err or "can't reach" in ended.err


def test_time_that_is_up_inside_of_what_is_done_is_not_the_commands(server) -> None:
    async def work(_client: Client) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        perform(Settings(server=server.address), work)


def test_ctrl_c_ends_with_130(server, capsys) -> None:
    async def work(_client: Client) -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        perform(Settings(server=server.address), work)
    assert ended.value.code == ExitCode.INTERRUPTED == 130
    assert "may have been done" in capsys.readouterr().err


def test_what_was_typed_is_said_again_and_what_is_there_anyway_is_not() -> None:
    settings = Settings(server="here:1", flags=("--namespace", "my team"))
    assert settings.command == "stepgraph --namespace 'my team'"


def test_what_is_not_done_yet_is_told_kindly(run, server) -> None:
    server.add_run("r")
    refusal = Refusal(
        code=grpc.StatusCode.UNIMPLEMENTED, reason="NOT_YET_SUPPORTED", message="not yet"
    )
    server.refuse("PauseRun", refusal)
    ended = run("runs", "pause", "r")
    assert ended.code == 3
    assert ended.err.splitlines()[1].startswith("This version of the server does not do that yet")
