"""Requests as the checker sees them: what it finds wrong with one, under small limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stepgraph.v1 import run_service_pb2
from stepgraph_server.api.fields import RequestLimits
from stepgraph_server.api.requests import RequestChecker
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.values import ValueLimits

if TYPE_CHECKING:
    from google.protobuf.message import Message

LIMITS: Final = RequestLimits(
    values=ValueLimits(max_inline_bytes=1_000, max_stored_bytes=10_000),
    max_labels=3,
    max_graph_bytes=500,
    max_start_bytes=2_000,
)
DIGEST: Final = "sha256:" + "0" * 64


def found(request: Message) -> list[tuple[str, str]]:
    """Return (path, reason) of everything that is wrong, sorted."""
    try:
        RequestChecker(LIMITS).check(request)
    except Refused as error:
        return sorted((each.path, each.reason) for each in error.violations)
    return []


def start(**fields: Any) -> run_service_pb2.StartRunRequest:
    """Return a request that starts a run of some graph."""
    request = run_service_pb2.StartRunRequest(**fields)
    if not request.HasField("graph"):
        request.graph.reference = "greet"
    return request
