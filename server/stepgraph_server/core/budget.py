"""The token budget of a run.

Rules: the limit never changes; what is used is what accepted results and failure reports state. Under a limit, work that
spends tokens starts only if something was left at the start of the superstep, so parallel nodes are not treated by chance. What a
node has used since counts for itself and what it spawned: a program may ask for models turn after turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph_server.core.failures import failure

if TYPE_CHECKING:
    from stepgraph.v1 import failure_pb2
    from stepgraph_server.core.state import Activation, RunState


def budget_failure(state: RunState, activation: Activation) -> failure_pb2.Failure | None:
    """Return why work of a node that spends tokens may not start now, or None if it may."""
    spent = activation.root.spent
    if state.budget_at_start is None or state.budget_at_start > spent:
        return None
    used, node_id = state.tokens.used, activation.node.id
    return failure(
        "TOKEN_BUDGET_SPENT",
        f"{used} of {state.token_limit} tokens are used, so {node_id!r} did not {'go on' if spent else 'start'}; start a run with a larger token_limit",
        source=node_id,
        details={"token_limit": str(state.token_limit), "used": str(used)},
    )
