"""What a status is called, and how a run refuses what comes too late for it."""

from __future__ import annotations

from stepgraph.v1 import run_pb2
from stepgraph_server.core.inputs import Cancel
from stepgraph_server.core.status import is_ending, run_ended, status_name
from tests.support.core_pieces import compiled, started

TOOL = compiled('nodes: [{id: a, tool_call: {tool_name: t, args_template: "{}"}}]')
ASKS = compiled("nodes: [{id: a, human_approval: Go on?}]")


def test_a_status_is_called_what_people_call_it() -> None:
    """Without the prefix that the schema needs."""
    assert status_name(run_pb2.RUN_STATUS_SUSPENDED) == "SUSPENDED"


def test_a_run_that_stops_ends_as_well_as_one_that_has_ended() -> None:
    """The status that is named is the one that callers see."""
    live, stopping, over = started(TOOL), started(TOOL), started(ASKS)
    stopping.happen(Cancel(reason="enough"))
    over.happen(Cancel(reason="enough"))
    assert [is_ending(each.state) for each in (live, stopping, over)] == [False, True, True]
    refusal = run_ended(stopping.state, "it can't be paused")
    assert (refusal.reason, refusal.message) == (
        "RUN_ENDED",
        "run r1 is STOPPING, so it can't be paused",
    )
    assert run_ended(over.state, "no").metadata == {"run_id": "r1", "status": "CANCELLED"}
