"""How lists of runs are read; that they are right is tested in tests/contracts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stepgraph_server.core.instants import Instant
from stepgraph_server.storage.runs import RunQuery
from stepgraph_server.storage.sqlite.runs import list_statement

if TYPE_CHECKING:
    import sqlite3


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ({}, "runs_by_time"),
        ({"statuses": frozenset({6})}, "runs_ended"),
        ({"graph_digest": "sha256:aa"}, "runs_by_graph"),
        ({"graph_name": "g"}, "runs_by_graph_name"),
        ({"root_run_id": "r"}, "runs_by_root"),
        ({"create_min": Instant(1), "create_max": Instant(2)}, "runs_by_time"),
        ({"labels": {"a": "b"}}, "l0 USING PRIMARY KEY"),
        ({"labels": {"a": "b", "c": "d"}, "after": (Instant(1), "r")}, "l0 USING PRIMARY KEY"),
        ({"after": (Instant(1), "r")}, "runs_by_time"),
    ],
    ids=str,
)
def test_a_page_is_read_from_an_index_in_order(
    connection: sqlite3.Connection, query: dict[str, object], index: str
) -> None:
    """Its cost does not grow with the number of runs."""
    text, values = list_statement("default", RunQuery(**query))
    steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", values)]
    assert index in steps[0], steps
    assert not [step for step in steps if "TEMP B-TREE" in step]


def test_values_are_bound() -> None:
    """Whatever a caller writes is data."""
    evil = "'; DROP TABLE runs; --"
    query = RunQuery(
        graph_digest=evil, graph_name=evil, labels={evil: evil, "b": evil}, root_run_id=evil
    )
    text, values = list_statement(evil, query)
    assert evil not in text
    assert text.count("?") == len(values)
