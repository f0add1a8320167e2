"""Signals; the whole story is in tests/scenarios."""

from __future__ import annotations

import pytest

from stepgraph.v1 import task_pb2, transition_pb2
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.inputs import Cancel, Signal, TimePassed
from stepgraph_server.core.names import MAX_KEPT_SIGNALS
from stepgraph_server.core.run import decide
from stepgraph_server.core.state import KeptSignal, Phase
from tests.support.core_pieces import compiled, started, succeeded, text

WAITS = compiled("nodes: [{id: a, wait_signal: {name: go, count: 2}}]")
ASKS = compiled("nodes: [{id: a, human_approval: Go on?}]")


def test_more_than_may_be_kept_are_refused() -> None:
    """A sender that nobody listens to does not fill a run, and what was kept stays."""
    run = started(ASKS)
    kept = KeptSignal("other", "", text("x"))
    run.state.signals.extend([kept] * MAX_KEPT_SIGNALS)
    with pytest.raises(Refused, match="more are not kept") as refused:
        # Not through the played run: what is kept here follows from no event.
        decide(run.state, Signal(name="other"), run.world, run.now)
    assert refused.value.reason == "LIMIT_EXCEEDED"
    assert refused.value.metadata["limit"] == str(MAX_KEPT_SIGNALS)
    assert len(run.state.signals) == MAX_KEPT_SIGNALS


def test_a_run_that_stops_takes_no_signals() -> None:
    """Nothing of it will ever wait again."""
    run = started(compiled('nodes: [{id: a, tool_call: {tool_name: t, args_template: "{}"}}]'))
    run.happen(Cancel(reason="enough"))
    with pytest.raises(Refused, match="is STOPPING") as refused:
        run.happen(Signal(name="go"))
    assert refused.value.reason == "RUN_ENDED"


def test_a_payload_may_be_missing() -> None:
    """It is empty then, and keeps its place."""
    run = started(WAITS)
    run.happen(Signal(name="go", payload=text("one")))
    run.happen(Signal(name="go"))
    assert run.state.result is not None
    assert run.state.result.output.json == '["one",""]'


def test_who_has_got_a_signal_can_fail_and_be_stopped_behind_it() -> None:
    """Its edges wait for an executor then, and nothing of it is about a call of a model."""
    waits = compiled(
        "nodes: [{id: a, wait_signal: {name: go}}, {id: b, assign: {}}]\n"
        "edges: [{from: a, to: b, when: {custom: good}}]\n"
    )
    wrong = task_pb2.TaskResult(tool=transition_pb2.ToolResult())
    for happened in (Cancel(reason="enough"), succeeded("1/a/c/a.b", wrong)):
        run = started(waits)
        run.happen(Signal(name="go"))
        assert run.state.activations["1/a"].phase is Phase.ROUTING
        run.happen(happened)
        run.now += run.world.limits.cancel_grace
        run.happen(TimePassed())
        assert run.state.final
