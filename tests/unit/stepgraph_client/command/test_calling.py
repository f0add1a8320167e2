from __future__ import annotations

from typing import TYPE_CHECKING

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
