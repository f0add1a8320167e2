"""Who asks for something, and what a request that changes something is remembered by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls, and on behalf of which trace. `identity` is empty while there is no authentication."""

    traceparent: str = ""
    tracestate: str = ""
    identity: str = ""
    peer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKey:
    """What a request that changes something is remembered by."""

    method: str
    request_id: str
    fingerprint: str
