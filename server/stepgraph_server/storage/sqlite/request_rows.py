"""Records of requests as rows: those that travel with an append, and those that come alone, are stored in one form."""

from __future__ import annotations

from stepgraph_server.core.instants import Instant
from stepgraph_server.storage.records import RequestRecord


def request_row(namespace: str, record: RequestRecord) -> tuple[str, str, str, str, bytes, int]:
    """Return a record as insert_request takes it."""
    return (
        namespace,
        record.method,
        record.request_id,
        record.fingerprint,
        record.response,
        record.create_time,
    )


def request_of_row(row: tuple[str, str, str, bytes, int]) -> RequestRecord:
    """Return the record that find_request found."""
    method, request_id, fingerprint, response, create_time = row
    return RequestRecord(
        method=method,
        request_id=request_id,
        fingerprint=fingerprint,
        response=response,
        create_time=Instant(create_time),
    )
