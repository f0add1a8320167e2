"""What a status is called, and how a run refuses what comes too late for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import run_pb2
from stepgraph_server.core.errors import Refused

if TYPE_CHECKING:
    from stepgraph_server.core.state import RunState


def status_name(number: int) -> str:
    """Return a number of RunStatus as people read it: RUNNING."""
    return run_pb2.RunStatus.Name(run_pb2.RunStatus.ValueType(number)).removeprefix("RUN_STATUS_")


def is_ending(state: RunState) -> bool:
    """Whether a run has ended, or is about to."""
    return state.final or state.stopping is not None


def run_ended(state: RunState, consequence: str) -> Refused:
    """Return the refusal of what a run that has ended, or is about to, can't do any more: "so it can't be paused"."""
    status = status_name(state.status if state.final else run_pb2.RUN_STATUS_STOPPING)
    message = f"run {state.run_id} is {status}, so {consequence}"
    return Refused("RUN_ENDED", message, metadata={"run_id": state.run_id, "status": status})
