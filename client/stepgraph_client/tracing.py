"""The trace of the program that uses this package, handed on to the server with each call.

Rules: OpenTelemetry is not needed, and what nobody has imported costs nothing: a program that traces has imported its API. Nothing is
configured here.
"""

from __future__ import annotations

import sys
from typing import Final

#: Loaded by whoever makes or configures spans, and by nobody else.
API: Final = "opentelemetry.trace"


def metadata() -> tuple[tuple[str, str], ...] | None:
    """Return what tells the server of a call which trace it is part of; None if it is part of none."""
    if API not in sys.modules:
        return None
    from opentelemetry import propagate  # noqa: PLC0415  # see the rules

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    # gRPC refuses names with capitals, which some propagators use.
    return tuple((name.lower(), value) for name, value in carrier.items()) or None
