"""Who calls: what can be known of it from a call's metadata.

Rules: metadata comes from anybody, so what does not look right counts as absent; a broken trace header never fails a call.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from stepgraph_server.api.requests import fingerprint
from stepgraph_server.engine.callers import Caller, RequestKey

if TYPE_CHECKING:
    from typing import Protocol

    from google.protobuf.message import Message

    from stepgraph_server.api.ports import Context

    class Changing(Protocol):
        """A request that changes something."""

        @property
        def request_id(self) -> str:
            """What makes it idempotent; may be empty."""
            ...


# https://www.w3.org/TR/trace-context: version, trace, span, flags. Zero ids are no ids.
_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
MAX_TRACESTATE_CHARACTERS: Final = 512


def caller_of(context: Context) -> Caller:
    """Return who calls."""
    found: dict[str, str] = {}
    for key, value in context.invocation_metadata() or ():
        if isinstance(value, str):
            found.setdefault(key, value)
    traceparent = found.get("traceparent", "")
    if not _TRACEPARENT.fullmatch(traceparent):
        return Caller(peer=context.peer())
    tracestate = found.get("tracestate", "")
    return Caller(
        traceparent=traceparent,
        tracestate=tracestate if len(tracestate) <= MAX_TRACESTATE_CHARACTERS else "",
        peer=context.peer(),
    )


def request_key(method: str, request: Changing) -> RequestKey | None:
    """Return what a request is remembered by; None if its caller did not ask for that."""
    if not request.request_id:
        return None
    return RequestKey(
        method=method,
        request_id=request.request_id,
        fingerprint=fingerprint(cast("Message", request)),
    )
