"""Records of requests as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph_server.storage.sqlite.queries import QUERIES
from stepgraph_server.storage.sqlite.request_rows import request_of_row, request_row
from tests.contracts.storing import request

if TYPE_CHECKING:
    import sqlite3


def test_a_record_comes_back_from_its_row(connection: sqlite3.Connection) -> None:
    """Each field in its column."""
    record = request(fingerprint="sha256:f", response=b"\x00\xff")
    connection.execute(QUERIES["insert_request"], request_row("default", record))
    place = ("default", record.method, record.request_id)
    row = connection.execute(QUERIES["find_request"], place).fetchone()
    assert request_of_row(row) == record
