"""The statements of queries.sql."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from stepgraph_server.storage.sqlite.queries import QUERIES, parse

if TYPE_CHECKING:
    import sqlite3


class Anything(dict[str, int]):
    """A value for every name."""

    def __missing__(self, name: str) -> int:
        return 1


def explain(connection: sqlite3.Connection, name: str) -> str:
    text = QUERIES[name]
    marks = text.count("?")
    names = set(re.findall(r":(\w+)", text))
    values = (1,) * marks if marks else dict.fromkeys(names, 1)
    return "\n".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", values))


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_every_statement_fits_the_schema(connection: sqlite3.Connection, name: str) -> None:
    """And finds its rows by an index: no statement reads a whole table."""
    steps = explain(connection, name)
    scans = [
        line
        for line in steps.splitlines()
        # `v` are values that the statement itself lists.
        if line.startswith("SCAN")
        and line != "SCAN v"
        and "USING" not in line
        and "CONSTANT ROW" not in line
    ]
    # One row, which is the whole table.
    assert name == "probe" or not scans


@pytest.mark.parametrize("name", ["read_run", "read_positions", "open_runs", "list_versions"])
def test_what_is_read_in_order_is_not_sorted(connection: sqlite3.Connection, name: str) -> None:
    """The index has the order, so a page costs as much as it holds."""
    assert "TEMP B-TREE" not in explain(connection, name)


def test_a_file_has_named_statements() -> None:
    """Comments above a name are not part of the statement before."""
    text = "-- head\n\n-- name: one\nSELECT 1;\n\n-- why\n-- name: two\nSELECT\n  2;\n"
    assert parse(text) == {"one": "SELECT 1", "two": "SELECT\n  2"}


def test_a_name_stands_for_one_statement() -> None:
    """The second would silently win."""
    with pytest.raises(ValueError, match="two statements are named one"):
        parse("\n-- name: one\nSELECT 1;\n-- name: one\nSELECT 2;")


def test_no_value_stands_in_a_statement() -> None:
    """Values are bound; what is written out is part of the schema."""
    words = defaultdict(list)
    for name, text in QUERIES.items():
        for literal in re.findall(r"'[^']*'", text):
            words[literal].append(name)
    assert set(words) == {"''"}
