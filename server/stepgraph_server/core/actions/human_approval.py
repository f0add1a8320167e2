"""HumanApproval: its question is asked before it acts, so there is nothing left to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph_server.core.actions.step import Done

if TYPE_CHECKING:
    from stepgraph_server.core.actions.step import Poll, Step


def poll(_: Poll) -> Step:
    """Hand the carried part on; what the answer leaves is written for every answered node."""
    return Done()
