from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest

from stepgraph.v1.value_pb2 import Value
from stepgraph_client.command.calling import FileError
from stepgraph_client.command.parameters import (
    given_graph,
    json_value,
    moment,
    pair,
    reference,
    seconds,
    server_address,
    span,
    variable,
)


def test_pairs_are_split_at_the_first_sign() -> None:
    assert pair("a=b=c") == ("a", "b=c")
    assert pair("a=") == ("a", "")


def test_variables_are_text_or_json() -> None:
    assert variable("a=3") == ("a", Value(text="3"))
    assert variable("a:=9007199254740993") == ("a", Value(json="9007199254740993"))


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (pair, "a", "is not NAME=VALUE"),
        (pair, "=b", "is not NAME=VALUE"),
        (variable, ":=3", "is not NAME=TEXT"),
        (variable, "a:=[", "is not JSON"),
        (json_value, "{'a': 1}", "is not JSON: line 1, column 2: expected a key"),
        (span, "soon", "write one such as"),
        (server_address, "127.0.0.1", "is not HOST:PORT, such as"),
        (server_address, "127.0.0.1:99999", "is not HOST:PORT"),
        (server_address, "127.0.0.1:0", "is not HOST:PORT"),
        (server_address, ":7233", "is not HOST:PORT"),
        (server_address, "::1", "is not HOST:PORT"),
        (server_address, "http://127.0.0.1:7233", "is not HOST:PORT"),
    ],
)
def test_what_is_typed_wrongly_says_what_it_should_look_like(read, text, message) -> None:
    with pytest.raises(click.BadParameter, match=message):
        read(text)


def test_durations_are_checked_before_anything_is_sent() -> None:
    assert span("1h30m") == "1h30m"


def test_a_graph_is_a_file_if_it_looks_like_one_or_is_there(tmp_path) -> None:
    path = tmp_path / "graph"
    path.write_text("name: g\n")
    given = given_graph(str(path))
    assert given.definition is not None
    assert given.definition.name == "g"
    assert given_graph("react@3").definition is None
    for missing in ("missing.yaml", "graphs/missing", "./missing", "../missing"):
        with pytest.raises(FileError, match="No such file"):
            given_graph(missing)
    with pytest.raises(FileError, match="Is a directory"):
        given_graph(".")


@pytest.mark.parametrize(
    "text", ["127.0.0.1:7233", "db.internal:1", "[::1]:7233", "unix:/run/s.sock", "dns:///a:7233"]
)
def test_addresses_of_servers_are_taken_as_grpc_takes_them(text) -> None:
    assert server_address(text) == text


def test_a_file_is_no_reference(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "react.yaml").write_text("name: react\n")
    (tmp_path / "react").write_text("")
    with pytest.raises(click.BadParameter, match=r"`stepgraph graphs register react\.yaml`"):
        reference("react.yaml")
    assert reference("react") == "react"
    assert reference("gone.yaml") == "gone.yaml"


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31 12:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31T12:00:05Z", datetime(2026, 1, 31, 12, 0, 5, tzinfo=UTC)),
        ("2026-01-31T12:00+02:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
    ],
)
def test_a_point_in_time_is_in_utc_unless_it_says_otherwise(text, point) -> None:
    assert moment(text) == point


def test_a_length_of_time_means_so_long_ago() -> None:
    point = moment("2h")
    ago = datetime.now(UTC) - point
    assert timedelta(hours=2) <= ago < timedelta(hours=2, minutes=1)


def test_what_is_no_point_in_time_is_told_what_is_one() -> None:
    with pytest.raises(click.BadParameter, match="such as 2026-01-31"):
        moment("yesterday")


def test_a_time_to_wait_is_more_than_none() -> None:
    assert seconds("1m30s") == 90
    with pytest.raises(click.BadParameter, match="no time at all"):
        seconds("0s")
