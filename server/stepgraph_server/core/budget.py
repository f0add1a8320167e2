"""The token budget of a run.

Rules: the limit never changes; what is used is what accepted results and failure reports state. Under a limit, work that
spends tokens starts only if something was left at the start of the superstep, so parallel nodes are not treated by chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph_server.core.failures import failure

if TYPE_CHECKING:
    from stepgraph.v1 import failure_pb2
    from stepgraph_server.core.state import RunState


def budget_failure(state: RunState, node_id: str) -> failure_pb2.Failure | None:
    """Return why work that spends tokens may not start now, or None if it may."""
    if state.budget_at_start is None or state.budget_at_start > 0:
        return None
    used = state.tokens.used
    return failure(
        "TOKEN_BUDGET_SPENT",
        f"{used} of {state.token_limit} tokens are used, so {node_id!r} did not start; start a run with a larger token_limit",
        source=node_id,
        details={"token_limit": str(state.token_limit), "used": str(used)},
    )
